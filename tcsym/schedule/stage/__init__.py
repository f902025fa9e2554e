"""Copies of operands: packed panels, padded boxes, transposed and converted images."""
