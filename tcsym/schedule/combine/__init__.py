# SPDX-License-Identifier: Apache-2.0
"""Reductions in parts (rfactor, split-K), and the private scalars of sums."""
