# SPDX-License-Identifier: Apache-2.0
"""Prefetches, and stores that bypass the caches."""
