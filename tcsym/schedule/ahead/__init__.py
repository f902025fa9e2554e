"""Prefetches, and stores that bypass the caches."""
