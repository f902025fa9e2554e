# SPDX-License-Identifier: Apache-2.0
"""Nests on a device: plans that are proposed by what a nest is, and applied as loops of a grid."""
