"""CUDA devices: their memory, and kernels on them."""
