# SPDX-License-Identifier: Apache-2.0
"""Program -> program: sums, products and chains in the form that schedules well."""
