"""Leaf schedule `contraction` and its versions: register tiles over packed panels."""
