# SPDX-License-Identifier: Apache-2.0
"""Index-set splitting and guards: pieces of a loop in which conditions are decided."""
