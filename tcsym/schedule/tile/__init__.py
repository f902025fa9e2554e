# SPDX-License-Identifier: Apache-2.0
"""Register tiles, vectors, blocks of rows and columns, unroll-and-jam, transposition."""
