# SPDX-License-Identifier: Apache-2.0
"""Kernels as operators of other libraries. What is here is loaded when such a library is in use."""
