"""What code for every target shares: values, index code, mathematics, control flow, functions."""
