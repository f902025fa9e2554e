"""Kernels as operators of torch, which must be installed."""
