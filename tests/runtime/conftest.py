# SPDX-License-Identifier: Apache-2.0
"""Fixtures of more than one file."""

from __future__ import annotations

from tests.emulated_driver import cuda, emulated

__all__ = ["cuda", "emulated"]
