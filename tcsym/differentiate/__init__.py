"""Typed programs -> programs that compute their derivatives, as texts of our own language."""
