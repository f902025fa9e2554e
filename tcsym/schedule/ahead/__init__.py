# SPDX-License-Identifier: Apache-2.0
"""Stores that bypass the caches."""
