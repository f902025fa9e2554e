# SPDX-License-Identifier: Apache-2.0
"""Kernels and modules -> HTML of a cell: text, arguments, sizes, and what was called so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from tcsym.display.page import code, framed, paragraph, side_by_side, table

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel

_SHOWN = 2000  # characters of a text
_ROWS = 24


def kernel_html(kernel: Kernel) -> str:
    """Nothing is compiled for it."""
    arguments, sizes = list(_arguments(kernel)), list(_sizes(kernel))
    return framed(
        kernel.name,
        "kernel",
        side_by_side(
            _text(kernel.source),
            table(("", "name", "type", "shape"), arguments[:_ROWS], code=3)
            + _more(len(arguments), "signature")
            + table(("size", ""), sizes[:_ROWS])
            + _more(len(sizes), "sizes"),
        ),
        paragraph(_so_far(kernel)),
    )


def module_html(kernels: Sequence[Kernel], source: str) -> str:
    """All of the text, and its defs."""
    if len(kernels) == 1:
        return kernel_html(kernels[0])
    rows = [(kernel.name, repr(kernel.signature)) for kernel in kernels[:_ROWS]]
    told = f"{len(kernels)} defs"
    return framed("module", told, table(("def", "signature"), rows, code=1), _text(source))


def _text(source: str) -> str:
    shown = source.strip("\n")
    if len(shown) <= _SHOWN:
        return code(shown)
    lines = shown[:_SHOWN].split("\n")[:-1]
    rest = shown.count("\n") + 1 - len(lines)
    return code("\n".join(lines)) + paragraph(f"{rest} more lines in `source`")


def _more(n: int, field: str) -> str:
    return paragraph(f"and {n - _ROWS} more in `{field}`" if n > _ROWS else "")


def _arguments(kernel: Kernel) -> Iterator[tuple[str, str, str, str]]:
    signature = kernel.signature
    for name, t in signature.inputs.items():
        role = "inout" if name in signature.inouts else "input"
        yield role, name, str(t.dtype), _shape(t.shape)
    for name in signature.sizes:
        yield "size", name, "", ""
    for name, t in signature.outputs.items():
        yield "output", name, str(t.dtype), _shape(t.shape)


def _shape(shape: Sequence[object]) -> str:
    return shorten(", ".join(map(str, shape)), 120, placeholder=" …")


def _sizes(kernel: Kernel) -> Iterator[tuple[str, str]]:
    sizes = kernel.sizes
    for name, dim in sizes.items():
        yield name, f"= {dim}" if isinstance(dim, int) else str(dim)
    for condition in sizes.constraints:
        yield "checked", condition


def _so_far(kernel: Kernel) -> str:
    stats = kernel.stats
    n = sum(stats.dispatch.values())
    return f"calls: {n}, compilations: {stats.compilations}, from the cache: {stats.cache_hits}"
