# SPDX-License-Identifier: Apache-2.0
"""What stages exchange: the loop IR with its printer and verifier, and compiled variants."""
