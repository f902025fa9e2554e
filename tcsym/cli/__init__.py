# SPDX-License-Identifier: Apache-2.0
"""The command line: `tcsym run`, `bench`, `show`, `tune`, `cache`, `doctor`."""
