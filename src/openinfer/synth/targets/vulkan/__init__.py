"""Vulkan: the words in which GLSL says what the functions of kernels share with other languages."""
