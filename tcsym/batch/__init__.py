# SPDX-License-Identifier: Apache-2.0
"""A def -> the same for many inputs at once: another dimension in front of tensors."""
