# SPDX-License-Identifier: Apache-2.0
"""Regions of pairs of sizes -> a map as SVG, with dots where something was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from tcsym.display.page import HUES

WIDTH, HEIGHT = 400, 260  # of the field; a cell has whole numbers of them
LEFT, BELOW, MARGIN = 54, 40, 8
RIGHT = 24  # half of the label of the largest size stands there
COLUMNS, ROWS = 40, 26
_NEUTRAL = "#9aa0a6"  # of region 0
_TICKS = 5


class Axis(NamedTuple):
    """A size from `low` to `high`, in logarithmic steps."""

    name: str
    low: int
    high: int

    def at(self, share: float) -> int:
        return round(self.low * math.pow(self.high / self.low, share))

    def share(self, value: int) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[int]:
        """Powers of two, not too many; the ends where there are none."""
        powers = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
        chosen = [2**k for k in powers[:: 1 + len(powers) // (_TICKS + 1)]]
        return chosen if len(chosen) > 1 else [self.low, self.high]


class Dot(NamedTuple):
    """`is_here`: it has the other sizes of the map, too."""

    x: int
    y: int
    is_here: bool
    told: str


def colour_of(region: int) -> str:
    """Region 0 is that of the default."""
    return HUES[(region - 1) % len(HUES)] if region else _NEUTRAL


def region_map(x: Axis, y: Axis, which: Callable[[int, int], int], dots: Iterable[Dot]) -> str:
    """which(a, b): the number of the region of these sizes."""
    cells = [
        [which(x.at((i + 0.5) / COLUMNS), y.at((j + 0.5) / ROWS)) for i in range(COLUMNS)]
        for j in range(ROWS)
    ]
    width, height = LEFT + WIDTH + RIGHT, MARGIN + HEIGHT + BELOW
    parts = [_field(cells), _labels(cells), _scales(x, y), *(_dot(x, y, d) for d in dots)]
    told = f"regions of options over {x.name} and {y.name}"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' aria-label="{escape(told)}" font-size="11">{"".join(parts)}</svg>'
    )


def _field(cells: Sequence[Sequence[int]]) -> str:
    """A path for each region, a rectangle for each run of cells."""
    paths: dict[int, list[str]] = {}
    for j, row in enumerate(cells):
        start = 0
        for i in range(1, len(row) + 1):
            if i == len(row) or row[i] != row[start]:
                run = f"M{start} {ROWS - 1 - j}h{i - start}v1h{start - i}z"
                paths.setdefault(row[start], []).append(run)
                start = i
    scale = f"translate({LEFT} {MARGIN})scale({WIDTH // COLUMNS} {HEIGHT // ROWS})"
    drawn = "".join(
        f'<path d="{"".join(runs)}" fill="{colour_of(region)}"/>'
        for region, runs in sorted(paths.items())
    )
    return f'<g transform="{scale}" shape-rendering="crispEdges">{drawn}</g>'


def _labels(cells: Sequence[Sequence[int]]) -> str:
    """The number of each region, at that of its cells which is nearest to their middle."""
    places: dict[int, list[tuple[int, int]]] = {}
    for j, row in enumerate(cells):
        for i, region in enumerate(row):
            places.setdefault(region, []).append((i, j))
    return "".join(_label(region, found) for region, found in sorted(places.items()))


def _label(region: int, places: Sequence[tuple[int, int]]) -> str:
    middle = [sum(place[k] for place in places) / len(places) for k in (0, 1)]
    i, j = min(places, key=lambda p: (p[0] - middle[0]) ** 2 + (p[1] - middle[1]) ** 2)
    x = LEFT + (i + 0.5) * WIDTH / COLUMNS
    y = MARGIN + (ROWS - j - 0.5) * HEIGHT / ROWS
    return (
        f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="#fff" fill-opacity=".85"/>'
        f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle" style="fill:#1c2128;font-weight:600">'
        f"{region}</text>"
    )


def _scales(x: Axis, y: Axis) -> str:
    bottom = MARGIN + HEIGHT
    parts = [
        f'<text x="{_x(x, v):.1f}" y="{bottom + 15}" text-anchor="middle">{v}</text>'
        for v in x.ticks()
    ]
    parts += [
        f'<text x="{LEFT - 6}" y="{_y(y, v) + 4:.1f}" text-anchor="end">{v}</text>'
        for v in y.ticks()
    ]
    centre, middle = f"{LEFT + WIDTH / 2:g}", f"{MARGIN + HEIGHT / 2:g}"
    bold = 'style="font-weight:600"'
    parts.append(
        f'<text x="{centre}" y="{bottom + 34}" text-anchor="middle" {bold}>{escape(x.name)}</text>'
        f'<text x="2" y="{middle}" {bold}>{escape(y.name)}</text>'
    )
    return "".join(parts)


def _dot(x: Axis, y: Axis, dot: Dot) -> str:
    fill = 'fill="#111"' if dot.is_here else 'fill="none"'
    return (
        f'<circle cx="{_x(x, dot.x):.1f}" cy="{_y(y, dot.y):.1f}" r="4" {fill} stroke="#fff"'
        f' stroke-width="1.5" class="dot"><title>{escape(dot.told)}</title></circle>'
    )


def _x(axis: Axis, value: int) -> float:
    return LEFT + WIDTH * axis.share(value)


def _y(axis: Axis, value: int) -> float:
    return MARGIN + HEIGHT * (1 - axis.share(value))
