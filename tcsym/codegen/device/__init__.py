# SPDX-License-Identifier: Apache-2.0
"""Code for devices: regions as functions of one thread."""
