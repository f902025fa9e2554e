"""Kernels as folders: a shared library, a C header and a manifest, without a compiler inside."""
