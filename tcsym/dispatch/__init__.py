# SPDX-License-Identifier: Apache-2.0
"""Sizes of a call -> the version of the kernel that serves it: strategies at work."""
