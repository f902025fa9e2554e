"""Reductions in parts (rfactor, split-K), and the private scalars of sums."""
