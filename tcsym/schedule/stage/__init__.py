# SPDX-License-Identifier: Apache-2.0
"""Copies of operands: packed panels, padded boxes, transposed and converted images."""
