"""Temporaries: contracted, folded, padded, private, placed."""
