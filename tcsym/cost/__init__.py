# SPDX-License-Identifier: Apache-2.0
"""What a call of mapped loops takes: instructions counted by kind, and a price for each kind."""
