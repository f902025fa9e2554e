# SPDX-License-Identifier: Apache-2.0
"""Naive loops -> mapped loops, by plans of a few directives that one function each carries out."""
