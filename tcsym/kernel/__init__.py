# SPDX-License-Identifier: Apache-2.0
"""What users hold: modules, kernels, executables; how a call finds what serves it."""
