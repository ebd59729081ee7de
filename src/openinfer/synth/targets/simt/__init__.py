"""What targets share whose kernels run in many threads at once: the machine, the schedule, and an interpreter of it."""
