"""Shared by targets that run kernels in many threads: the machine model, the schedule, and an interpreter of it."""
