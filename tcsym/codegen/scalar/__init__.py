# SPDX-License-Identifier: Apache-2.0
"""What code for every target shares: values, index code, mathematics, control flow, functions."""
