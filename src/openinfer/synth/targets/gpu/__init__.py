"""What projects for GPUs share, whatever language their kernels are in: launches, and a host in C that records them."""
