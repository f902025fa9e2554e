# SPDX-License-Identifier: Apache-2.0
"""Programs as graphs of kernels, with memory that is planned once for declared bounds."""
