"""Compiles bound graphs to source code for a device. Knows nothing of simulation."""
