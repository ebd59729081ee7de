"""What projects for GPUs share, in any kernel language: launches, and a host in C that records them."""
