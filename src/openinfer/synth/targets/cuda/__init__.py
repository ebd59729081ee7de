"""CUDA: the words in which its device code says what the functions of kernels share with other languages."""
