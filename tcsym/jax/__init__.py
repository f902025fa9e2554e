# SPDX-License-Identifier: Apache-2.0
"""Kernels in JAX: functions that it compiles, differentiates, batches and exports."""

from tcsym.jax.handler import kernels, register
from tcsym.jax.operator import operator

__all__ = ["kernels", "operator", "register"]
