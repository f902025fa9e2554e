# SPDX-License-Identifier: Apache-2.0
"""CUDA devices: their memory, and kernels on them."""
