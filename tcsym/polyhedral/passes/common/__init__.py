"""What passes share: accesses, bounds, bands of loops, names; and small rewrites of one loop."""
