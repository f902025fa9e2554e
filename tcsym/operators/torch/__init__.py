# SPDX-License-Identifier: Apache-2.0
"""Kernels as operators of torch, which must be installed."""
