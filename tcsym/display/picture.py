# SPDX-License-Identifier: Apache-2.0
"""Elements that are read and written -> an SVG: a grid for each tensor, a sign for each element.

Text and lines take the colour around them, fills are seen on light and on dark, and each kind of
element has a sign beside its colour: a dot or a number, a corner, a dashed border.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.display.page import STYLE
from tcsym.display.picture_parts import MONO, Canvas, legend, planes_of, plural

WIDTH = 760
_MARGIN, _GAP = 10, 28
_LINE = 17
_MOST_STATEMENTS = 8
_COLOURS = (
    "<style>:root{color:#1f2328}@media(prefers-color-scheme:dark){:root{color:#e6e8eb}}</style>"
)


class Drawn(Struct, frozen=True):
    """A tensor and what becomes of its elements.

    reads: how often each is read. written: whether it is. outside: subscripts beyond it, and how
    often they would be read if a condition did not stand in front.
    """

    name: str
    role: str
    extents: tuple[str, ...]
    reads: NDArray[np.int64]
    written: NDArray[np.bool_]
    outside: Mapping[tuple[int, ...], int]


class Picture:
    """Which elements a kernel reads and writes, as `Kernel.picture` draws them.

    title: what is shown. statements: the texts that do it.
    reads: of each tensor that is read, how often each element is, as an array of its shape.
    writes: of the tensor that is written, which elements are, as an array of bools.
    svg: the picture, also as `str(picture)`; notebooks show it.
    """

    def __init__(self, title: str, statements: tuple[str, ...], tensors: tuple[Drawn, ...]) -> None:
        self.title = title
        self.statements = statements
        self._tensors = tensors

    @property
    def reads(self) -> dict[str, NDArray[np.int64]]:
        return {t.name: t.reads for t in self._tensors if t.reads.any()}

    @property
    def writes(self) -> dict[str, NDArray[np.bool_]]:
        return {t.name: t.written for t in self._tensors if t.written.any()}

    @property
    def svg(self) -> str:
        return self._svg(_COLOURS)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the SVG; returns the path."""
        path = Path(path)
        path.write_text(self.svg, encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<tcsym picture: {self.title}; {self._told()}>"

    def _repr_html_(self) -> str:
        width = f'style="max-width:{WIDTH + 20}px"'
        return f'{STYLE}<div class="tcsym" {width}>{self._svg("")}</div>'

    def _told(self) -> str:
        return "; ".join(f"{t.name}: {_told(t)}" for t in self._tensors)

    def _svg(self, style: str) -> str:
        canvas = Canvas()
        y = self._head(canvas)
        y = self._grids(canvas, y)
        kinds = {
            "once": any((t.reads == 1).any() for t in self._tensors),
            "often": any((t.reads > 1).any() for t in self._tensors),
            "written": any(t.written.any() for t in self._tensors),
            "outside": any(t.outside for t in self._tensors),
        }
        y = legend(canvas, _MARGIN, y + 4, [k for k, is_there in kinds.items() if is_there])
        return canvas.svg(WIDTH, y + _MARGIN, self.title, self._told(), style)

    def _head(self, canvas: Canvas) -> float:
        y = float(_MARGIN + 14)
        canvas.text(_MARGIN, y, self.title, size=15, weight=600)
        y += 6
        more = len(self.statements) - _MOST_STATEMENTS
        told = [f"and {plural(more, 'statement')} more"] if more > 0 else []
        for statement in [*self.statements[:_MOST_STATEMENTS], *told]:
            for line in textwrap.wrap(statement, 100, subsequent_indent="    "):
                y += _LINE
                canvas.text(_MARGIN, y, line, size=12, family=MONO)
        return y + 22

    def _grids(self, canvas: Canvas, y: float) -> float:
        """Tensors beside each other, in as many rows as it takes; where the last one ends."""
        x, below = float(_MARGIN), y
        for t in self._tensors:
            drawn, notes = planes_of(t.name, t.extents, t.reads, t.written, t.outside)
            shape = " × ".join(map(str, t.reads.shape)) or "a scalar"
            head = f"{t.name}({', '.join(t.extents)})" if t.extents else t.name
            words = [f"{shape}, {t.role}", _told(t), *notes]
            lines = [line for w in words for line in textwrap.wrap(w, 46)]
            width = max(
                drawn.width, canvas.width(head, 13, MONO), *(canvas.width(w, 11) for w in lines)
            )
            if x > _MARGIN and x + width > WIDTH - _MARGIN:
                x, y = float(_MARGIN), below
            canvas.text(x, y + 10, head, size=13, weight=600, family=MONO)
            for k, line in enumerate(lines):
                canvas.text(x, y + 26 + 14 * k, line, size=11, opacity=0.75)
            top = y + 26 + 14 * len(lines)
            canvas.place(drawn, x, top)
            below = max(below, top + drawn.height + _GAP)
            x += width + _GAP
        return below


def _told(t: Drawn) -> str:
    """Counts, in words."""
    parts = []
    n = t.reads.size
    if t.reads.any():
        read = int(np.count_nonzero(t.reads))
        times = int(t.reads.sum())
        often = f" {times} times" if times != read else ""
        parts.append(f"{read} of {plural(n, 'element')} read{often}")
    if t.written.any():
        parts.append(f"{int(np.count_nonzero(t.written))} of {n} written")
    if t.outside:
        parts.append(f"{plural(len(t.outside), 'place')} outside")
    return ", ".join(parts) or "nothing read"
