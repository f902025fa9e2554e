# SPDX-License-Identifier: Apache-2.0
"""Texts as people see them. Nothing here knows the compiler."""
