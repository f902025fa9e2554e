# SPDX-License-Identifier: Apache-2.0
"""Temporaries: contracted, folded, padded, private, placed."""
