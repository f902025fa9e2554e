"""Sizes of a call -> the version of the kernel that serves it: strategies at work."""
