# SPDX-License-Identifier: Apache-2.0
"""The command line: `tcsym check`, `run`, `bench`, `show`, `grad`, `tune` and others."""
