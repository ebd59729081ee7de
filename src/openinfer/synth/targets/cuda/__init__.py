"""The CUDA target: how kernel code that is shared with other languages is spelled in CUDA C++."""
