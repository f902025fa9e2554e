# SPDX-License-Identifier: Apache-2.0
"""Which versions a nest gets, under which conditions on sizes, and by which schedule."""
