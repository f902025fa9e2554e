"""Planted bugs, one at a time: what do the proofs, the tests and the fuzzer find?"""
