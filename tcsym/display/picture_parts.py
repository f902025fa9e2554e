# SPDX-License-Identifier: Apache-2.0
"""What pictures of accesses are made of: text and shapes of SVG, planes of a tensor, a legend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import product

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
SANS = "system-ui, sans-serif"
READ, WRITTEN = "#3f84c9", "#c8702a"

_MOST_PLANES = 6  # of a tensor with more than two dimensions
_MOST_LINES = 32  # rows or columns of a plane
_FAR = 3  # how far outside of a plane places are drawn
_PLANES_WIDTH = 400
_LEVELS = 4

Outside = Mapping[tuple[int, ...], int]


def plural(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def number(x: float) -> str:
    """As SVG has it, always the same."""
    return f"{x:.1f}".removesuffix(".0")


class Canvas(Struct):
    """Parts of an SVG."""

    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        family: str = SANS,
        weight: int = 400,
        anchor: str = "start",
        opacity: float = 1,
    ) -> None:
        given = [f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"']
        if family != SANS:
            given.append(f'font-family="{family}"')
        if weight != 400:
            given.append(f'font-weight="{weight}"')
        if anchor != "start":
            given.append(f'text-anchor="{anchor}"')
        if opacity != 1:
            given.append(f'opacity="{opacity}"')
        shown = escape(text).replace("  ", "\u00a0\u00a0")
        self.parts.append(f"<text {' '.join(given)}>{shown}</text>")

    def width(self, text: str, size: float, family: str = SANS) -> float:
        """About as wide as it will be."""
        return len(text) * size * (0.61 if family == MONO else 0.52)

    def path(self, d: Sequence[str], attributes: str) -> None:
        if d:
            self.parts.append(f'<path d="{"".join(d)}" {attributes}/>')

    def place(self, drawn: Planes, x: float, y: float) -> None:
        self.parts.append(f'<g transform="translate({number(x)} {number(y)})">')
        self.parts += drawn.canvas.parts
        self.parts.append("</g>")

    def svg(self, width: float, height: float, title: str, told: str, style: str) -> str:
        """The whole picture."""
        head = (
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {number(width)} {number(height)}" '
            f'font-family="{SANS}" fill="currentColor">'
        )
        named = f"<title>{escape(title)}</title>\n<desc>{escape(told)}</desc>"
        return "\n".join([head, named, *([style] if style else []), *self.parts, "</svg>\n"])


class Planes(Struct):
    """The planes of a tensor, drawn."""

    canvas: Canvas
    width: float
    height: float


def planes_of(
    name: str,
    extents: Sequence[str],
    reads: NDArray[np.int64],
    written: NDArray[np.bool_],
    outside: Outside,
) -> tuple[Planes, list[str]]:
    """The last two dimensions as a grid, at each position of those before; what is left out."""
    rank = reads.ndim
    shape = (1,) * max(0, 2 - rank) + reads.shape
    beyond = {(0,) * max(0, 2 - rank) + place: n for place, n in outside.items()}
    cube = reads.reshape(shape), written.reshape(shape)
    notes: list[str] = []
    leading, hidden = _leading(cube, beyond)
    notes += hidden
    touched = (cube[0] > 0) | cube[1]
    inside = {p: n for p, n in beyond.items() if p[:-2] in leading}
    far = len(beyond) - len(inside)
    if far:
        notes.append(f"{plural(far, 'place')} outside of other axes not drawn")
    views = [_view(touched, axis, [p[axis] for p in inside], notes) for axis in (-2, -1)]
    labels = ["", *extents] if rank == 1 else ["", ""] if rank == 0 else list(extents)
    planes = [
        _Plane(
            canvas=Canvas(),
            title=f"{name}({', '.join(map(str, at))}, ·, ·)" if rank > 2 else "",
            reads=cube[0][at],
            written=cube[1][at],
            outside={p[-2:]: n for p, n in inside.items() if p[:-2] == at},
            most=int(reads.max()) if reads.size else 0,
            rows=views[0],
            columns=views[1],
            labels=(labels[-2], labels[-1]),
        )
        for at in leading
    ]
    return _beside([p.drawn() for p in planes]), notes


def _beside(planes: Sequence[Planes]) -> Planes:
    """Beside each other, in as many rows as it takes."""
    canvas, x, y, width, height = Canvas(), 0.0, 0.0, 0.0, 0.0
    for part in planes:
        if x and x + part.width > _PLANES_WIDTH:
            x, y = 0.0, height + 10
        canvas.place(part, x, y)
        width, height = max(width, x + part.width), max(height, y + part.height)
        x += part.width + 14
    return Planes(canvas, width, height)


def _leading(
    cube: tuple[NDArray[np.int64], NDArray[np.bool_]], outside: Outside
) -> tuple[list[tuple[int, ...]], list[str]]:
    """Positions of the planes to draw: all of few, else the first of those where something is."""
    every = list(product(*map(range, cube[0].shape[:-2])))
    if len(every) <= _MOST_PLANES:
        return every, []
    beyond = {p[:-2] for p in outside}
    used = [at for at in every if cube[0][at].any() or cube[1][at].any() or at in beyond]
    drawn = used[:_MOST_PLANES]
    rest = len(used) - len(drawn)
    others = f"{rest} more are used" if rest else "the others are not used"
    return drawn, [f"{len(drawn)} of {len(every)} planes drawn; {others}"]


def _view(touched: NDArray[np.bool_], axis: int, outside: Sequence[int], notes: list[str]) -> range:
    """Rows or columns to draw, those just outside too: around what is used."""
    extent = touched.shape[axis]
    other = tuple(k for k in range(touched.ndim) if k != touched.ndim + axis)
    used = np.flatnonzero(touched.any(axis=other)).tolist()
    below = [p for p in outside if -_FAR <= p < 0]
    above = [p for p in outside if extent <= p < extent + _FAR]
    word = "rows" if axis == -2 else "columns"
    far = [p for p in outside if p < -_FAR or p >= extent + _FAR]
    if far:
        notes.append(f"{plural(len(far), 'place')} further outside not drawn")
    first, last = 0, extent
    if extent > _MOST_LINES:
        low, high = (used[0], used[-1] + 1) if used else (0, 1)
        first = max(0, min(low - 2, extent - _MOST_LINES))
        last = min(extent, first + _MOST_LINES)
        cut = len([u for u in used if u >= last])
        more = f", {cut} more are used" if cut and high > last else ""
        notes.append(f"{word} {first} to {last - 1} of {extent} drawn{more}")
    start = min([first, *below]) if first == 0 else first
    stop = max([last, *(p + 1 for p in above)]) if last == extent else last
    return range(start, stop)


class _Plane(Struct):
    """One plane. most: the largest count of the tensor. rows, columns: what of it is drawn."""

    canvas: Canvas
    title: str
    reads: NDArray[np.int64]
    written: NDArray[np.bool_]
    outside: Outside
    most: int
    rows: range
    columns: range
    labels: tuple[str, str]

    @property
    def cell(self) -> int:
        longest = max(len(self.rows), len(self.columns))
        return 20 if longest <= 12 else 16 if longest <= 20 else 12

    @property
    def left(self) -> float:
        """Beside the grid: the rows' name and numbers."""
        if not self.labels[0]:
            return 2
        numbers = 8 + 6.2 * len(str(self.rows[-1] if self.rows else 0))
        return max(numbers, 4 + self.canvas.width(f"{self.labels[0]} ↓", 10.5))

    def drawn(self) -> Planes:
        x, c = self.left, self.cell
        y = (16 if self.title else 0) + (28 if self.labels[1] else 4)
        width, height = c * len(self.columns), c * len(self.rows)
        if self.title:
            self.canvas.text(0, 11, self.title, size=11, family=MONO)
        self._axes(x, y)
        self._cells(x, y)
        reach = max(x + width, self.canvas.width(self.title, 11, MONO)) + 3
        return Planes(self.canvas, reach, y + height + 3)

    def _axes(self, x: float, y: float) -> None:
        c = self.cell
        rows, columns = self.labels
        if columns:
            self.canvas.text(x, y - 17, f"{columns} →", size=10.5, opacity=0.85)
            for k, n in _ticks(self.columns, self.reads.shape[1], c):
                self.canvas.text(x + c * (k + 0.5), y - 4, str(n), size=9.5, anchor="middle")
        if rows:
            self.canvas.text(0, y - 4, f"{rows} ↓", size=10.5, opacity=0.85)
            for k, n in _ticks(self.rows, self.reads.shape[0], c):
                self.canvas.text(x - 4, y + c * (k + 0.5) + 3.4, str(n), size=9.5, anchor="end")

    def _cells(self, x: float, y: float) -> None:
        """Fills, then lines, then signs."""
        c = self.cell
        fills: dict[float, list[str]] = {}
        kinds: dict[str, list[str]] = {k: [] for k in ("grid", "written", "corner", "dots", "out")}
        numbers = []
        for i, j in product(self.rows, self.columns):
            left, top = x + c * (j - self.columns[0]), y + c * (i - self.rows[0])
            square = f"M{number(left)} {number(top)}h{c}v{c}h{-c}z"
            if not (0 <= i < self.reads.shape[0] and 0 <= j < self.reads.shape[1]):
                if (i, j) in self.outside:
                    inner = f"M{number(left + 2)} {number(top + 2)}h{c - 4}v{c - 4}h{4 - c}z"
                    kinds["out"].append(inner)
                continue
            kinds["grid"].append(square)
            n = int(self.reads[i, j])
            if n:
                fills.setdefault(_shade(n, self.most), []).append(square)
                if n == 1:
                    kinds["dots"].append(f"M{number(left + c / 2)} {number(top + c / 2)}h0")
                else:
                    numbers.append((left + c / 2, top + c / 2 + 0.19 * c, str(n)))
            if self.written[i, j]:
                inner = f"M{number(left + 1)} {number(top + 1)}h{c - 2}v{c - 2}h{2 - c}z"
                kinds["written"].append(inner)
                kinds["corner"].append(
                    f"M{number(left + 1)} {number(top + 1)}h{c / 2:.0f}l{-c / 2:.0f} {c / 2:.0f}z"
                )
        for shade, squares in sorted(fills.items()):
            self.canvas.path(squares, f'fill="{READ}" fill-opacity="{shade}"')
        signs(self.canvas, kinds, c)
        for at_x, at_y, text in numbers:
            size = min(0.55 * c, 1.5 * c / len(text))
            self.canvas.text(at_x, at_y, text, size=size, anchor="middle")


def signs(canvas: Canvas, kinds: Mapping[str, Sequence[str]], cell: int) -> None:
    """What says which kind an element is, beside its colour."""
    grid = 'fill="none" stroke="currentColor" stroke-opacity="0.3" stroke-width="0.7"'
    canvas.path(kinds["grid"], grid)
    canvas.path(
        kinds["written"],
        f'fill="{WRITTEN}" fill-opacity="0.3" stroke="{WRITTEN}" stroke-width="2"',
    )
    canvas.path(kinds["corner"], f'fill="{WRITTEN}"')
    canvas.path(
        kinds["out"],
        'fill="none" stroke="currentColor" stroke-opacity="0.8" stroke-dasharray="3 2"',
    )
    dot = f'stroke="currentColor" stroke-width="{number(cell / 4)}" stroke-linecap="round"'
    canvas.path(kinds["dots"], dot)


def _shade(n: int, most: int) -> float:
    """Of a count: from light for 1 to dark for the largest, in few steps."""
    if most <= 1:
        return 0.45
    level = round((_LEVELS - 1) * np.log(n) / np.log(most))
    return float(round(0.25 + 0.15 * level, 2))


def _ticks(drawn: range, extent: int, cell: int) -> Iterator[tuple[int, int]]:
    """Places of numbers along an axis, and the numbers."""
    step = 1 if cell >= 20 and extent <= 10 else 5 if cell >= 16 else 10
    for k, n in enumerate(drawn):
        if 0 <= n < extent and (n % step == 0):
            yield k, n


_WORDS = {
    "once": "read once",
    "often": "read as often as it says",
    "written": "written",
    "outside": "outside, where a condition takes another arm",
}


def legend(canvas: Canvas, x: float, y: float, kinds: Sequence[str]) -> float:
    """Signs with what they mean, in a row; where it ends."""
    c = 14
    for kind in kinds:
        square = f"M{number(x)} {number(y)}h{c}v{c}h{-c}z"
        found: dict[str, list[str]] = {k: [] for k in ("grid", "written", "corner", "dots", "out")}
        if kind in ("once", "often"):
            canvas.path([square], f'fill="{READ}" fill-opacity="{0.45 if kind == "once" else 0.7}"')
            found["grid"] = [square]
        if kind == "once":
            found["dots"] = [f"M{number(x + c / 2)} {number(y + c / 2)}h0"]
        if kind == "written":
            inner = f"M{number(x + 1)} {number(y + 1)}h{c - 2}v{c - 2}h{2 - c}z"
            found["written"] = [inner]
            found["corner"] = [f"M{number(x + 1)} {number(y + 1)}h{c // 2}l{-c // 2} {c // 2}z"]
        if kind == "outside":
            found["out"] = [f"M{number(x + 1)} {number(y + 1)}h{c - 2}v{c - 2}h{2 - c}z"]
        signs(canvas, found, c)
        if kind == "often":
            canvas.text(x + c / 2, y + 10.5, "3", size=9.5, anchor="middle")
        canvas.text(x + c + 6, y + 11, _WORDS[kind], size=11, opacity=0.85)
        x += c + 6 + canvas.width(_WORDS[kind], 11) + 18
    return y + c
