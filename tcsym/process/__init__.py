# SPDX-License-Identifier: Apache-2.0
"""The process around kernels: its settings, threads, forks, recursion."""
