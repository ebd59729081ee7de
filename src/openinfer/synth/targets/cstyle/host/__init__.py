"""Code of the host, in plain C whatever runs the kernels: blocks, loops, dynamic sizes, integers, failures."""
