# SPDX-License-Identifier: Apache-2.0
"""Typed programs -> programs that compute their derivatives, as texts of our own language."""
