# SPDX-License-Identifier: Apache-2.0
"""What is asked of nests: accesses, strides, bounds, bands, costs, legality of vectors."""
