"""What is asked of nests: accesses, strides, bounds, bands, costs, legality of vectors."""
