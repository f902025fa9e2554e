"""Sizes of a kernel: what is declared of them, contexts of variants, regions."""
