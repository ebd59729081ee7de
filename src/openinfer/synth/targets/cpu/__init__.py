"""Scheduling for processors: tiles, packed weights, vectors, and parts for threads."""
