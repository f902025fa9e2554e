# SPDX-License-Identifier: Apache-2.0
"""Sizes of a kernel: what is declared of them, contexts of variants, regions."""
