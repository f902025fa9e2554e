# SPDX-License-Identifier: Apache-2.0
"""Kernels of the library and their gradients: compiled here, run where they belong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import tcsym
from tcsym import library
from tcsym.errors import DerivativeError
from tcsym.runtime import loader
from tcsym.runtime.background import settle
from tcsym.runtime.cpu import Cpu
from tests.test_packed_code import AARCH64, COLUMNS, ROWS, text

TARGET = "cpu:neon"
PRODUCTS = [(*x[:3], layout) for x in AARCH64 for layout in (ROWS, COLUMNS)]
EXPORTED = ("matmul", "softmax", "conv2d", "attention", "lstm")


@contextmanager
def compiled_only() -> Iterator[None]:
    """Code is made and kept for a processor that is not here: calls run nothing."""
    idle = Mock(**{"run.return_value": 0})
    with (
        patch.object(Cpu, "require"),
        patch.object(Cpu, "load", return_value=idle),
        patch.object(loader, "processors", return_value="aarch64"),  # of what the cache has
    ):
        yield
        settle()


def kernel_of(name: str) -> Any:
    return tcsym.define(library.source(name), target=TARGET, strategy="symbolic")[name]


def product_of(a: str, b: str, wide: str, layout: tuple[str, str]) -> Any:
    """By instructions that not all processors have."""
    return tcsym.define(text(a, b, wide, layout), target="cpu:neonbf16", strategy="symbolic").f


def gradient_of(name: str) -> Any:
    """None of what has none."""
    try:
        return kernel_of(name).grad()
    except DerivativeError:
        return None


def compiled() -> Iterator[str]:
    """All of them, into the code cache."""
    for name in library.names():
        kernel_of(name).precompile()
        gradient = gradient_of(name)
        if gradient is not None:
            gradient.precompile()
        yield name
    for x in PRODUCTS:
        product_of(*x).precompile()
        yield " ".join(x[:3])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with compiled_only():
        for made in compiled():
            print(made, flush=True)
    for name in EXPORTED:
        kernel_of(name).export(folder / name, targets=[TARGET])
