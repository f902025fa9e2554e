# SPDX-License-Identifier: Apache-2.0
"""Kernels on arrays with names of dimensions."""

from tcsym.xarray.apply import apply

__all__ = ["apply"]
