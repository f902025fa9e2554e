"""Kernels in JAX: functions that it compiles, differentiates and batches."""

from tcsym.jax.operator import operator

__all__ = ["operator"]
