# SPDX-License-Identifier: Apache-2.0
"""Loops merged, coalesced, interchanged, distributed; terms put in order."""
