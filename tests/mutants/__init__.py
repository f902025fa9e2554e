# SPDX-License-Identifier: Apache-2.0
"""Planted bugs, one at a time: what do the proofs, the tests and the fuzzer find?"""
