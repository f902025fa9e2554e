# SPDX-License-Identifier: Apache-2.0
"""What code is made for: processors and their caches, and LLVM's machines."""
