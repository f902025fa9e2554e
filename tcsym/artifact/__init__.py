# SPDX-License-Identifier: Apache-2.0
"""Kernels as folders: a shared library, a C header and a manifest, without a compiler inside."""
