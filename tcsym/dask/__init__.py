# SPDX-License-Identifier: Apache-2.0
"""Kernels on chunked arrays of Dask."""

from tcsym.dask.apply import apply

__all__ = ["apply"]
