# SPDX-License-Identifier: Apache-2.0
"""Report of a tune -> HTML of a cell: times and gains, and a map of which option serves where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from tcsym.display.page import closed_part, framed, key_of, paragraph, side_by_side, table
from tcsym.display.regions import Axis, Dot, colour_of, region_map
from tcsym.options import Options
from tcsym.tuning.evaluate import Values
from tcsym.tuning.tree import Box, Leaf, Predicate, Tree, leaf_of, leaves_of

if TYPE_CHECKING:
    from tcsym.tuning.report import TuningReport

_ROWS = 12  # of a table
_BEYOND = 2  # how many times beyond the sizes that were tuned the map goes


def report_html(report: TuningReport, words: Sequence[str]) -> str:
    """What `str` says, as tables, with the map. words: lines of it that are no figures."""
    told = "".join(map(paragraph, words))
    if report.stopped == "unmeasured":
        return framed(report.name, "", told, _ranked(report))
    head = f"{report.gained()} · {report.seconds:.1f} s, stopped: {report.stopped}"
    regions = regions_of(report.tree)
    return framed(
        report.name,
        head,
        side_by_side(_map(report, regions), _legend(regions) + _measured(report, regions)),
        told,
        _failures(report),
    )


def regions_of(tree: Tree) -> dict[Options, int]:
    """A number for each of the options that serve; 0 for the default."""
    others = [o for o in dict.fromkeys(leaves_of(tree)) if o != Options()]
    found = {Options(): 0} if Options() in leaves_of(tree) else {}
    return found | {options: k for k, options in enumerate(others, 1)}


# ---- the map


def _map(report: TuningReport, regions: Mapping[Options, int]) -> str:
    """Nothing where one option serves all sizes, or sizes are not two."""
    if len(regions) < 2 or len(report.sizes) < 2:
        return ""
    points = list(report.confirmed or report.weights)
    first, second = shown_sizes(report.tree, points, len(report.sizes))
    fixed = fixed_sizes(points, report.weights)

    def which(a: int, b: int) -> int:
        values = list(fixed)
        values[first], values[second] = a, b
        return regions[leaf_of(report.tree, values).options]

    x, y = (_axis(report.sizes[k], [p[k] for p in points]) for k in (first, second))
    others = [k for k in range(len(report.sizes)) if k not in (first, second)]
    dots = [
        Dot(p[first], p[second], all(p[k] == fixed[k] for k in others), _named(report.sizes, p))
        for p in points
    ]
    drawn = region_map(x, y, which, [d for d in dots if min(d.x, d.y) > 0])
    return drawn + paragraph(_told(report.sizes, fixed, others, dots))


def _told(names: Sequence[str], fixed: Values, others: Sequence[int], dots: Sequence[Dot]) -> str:
    where = ", ".join(f"{names[k]} = {fixed[k]}" for k in others)
    told = f"Which options serve{' at ' + where if where else ''}; dots: measured"
    if not all(dot.is_here for dot in dots):
        told += f", hollow at another {' or '.join(names[k] for k in others)}"
    return f"{told}."


def shown_sizes(tree: Tree, points: Sequence[Values], n_sizes: int) -> tuple[int, int]:
    """The two sizes by which regions differ, and among these the ones that were varied most."""
    tested = _tested(tree)

    def rank(k: int) -> tuple[bool, float]:
        values = [max(1, p[k]) for p in points] or [1]
        return k in tested, max(values) / min(values)

    first, second = sorted(range(n_sizes), key=rank, reverse=True)[:2]
    return min(first, second), max(first, second)


def _tested(tree: Tree) -> set[int]:
    if isinstance(tree, Leaf):
        return set()
    below = _tested(tree.then) | _tested(tree.orelse)
    match tree.test:
        case Predicate() as test:
            return {*test.sizes, *test.other} | below
        case Box():  # where the tune was, of all sizes
            return below
        case _:
            assert_never(tree.test)


def fixed_sizes(points: Sequence[Values], weights: Mapping[Values, float]) -> Values:
    """The point that the map goes through: the heaviest."""
    return max(points, key=lambda p: weights.get(p, 0.0))


def _axis(name: str, values: Sequence[int]) -> Axis:
    low, high = max(1, min(values)), max(2, *values)
    return Axis(name, max(1, low // _BEYOND), high * _BEYOND)


def _named(names: Sequence[str], values: Values) -> str:
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values))


# ---- tables


def _legend(regions: Mapping[Options, int]) -> str:
    if len(regions) == 1:
        return paragraph(f"At all sizes: {next(iter(regions))}")
    shown = list(regions.items())[:_ROWS]
    rows = [(key_of(colour_of(k), str(k)), str(options)) for options, k in shown]
    rest = f"and {len(regions) - _ROWS} more in `options`" if len(regions) > _ROWS else ""
    return table(("", "options"), rows, code=1) + paragraph(rest)


def _measured(report: TuningReport, regions: Mapping[Options, int]) -> str:
    rows = []
    for values, ratio in list(report.confirmed.items())[:_ROWS]:
        gain, error = ratio.gain
        options = leaf_of(report.tree, values).options
        time = f"{1e6 * ratio.seconds:.1f} us"
        rows.append((*map(str, values), time, f"{gain:.3f} ± {error:.3f}", str(regions[options])))
    n = len(report.sizes)
    rest = len(report.confirmed) - len(rows)
    return table((*report.sizes, "time", "gain", "options"), rows, right=range(n + 3)) + paragraph(
        f"and {rest} more sizes in `confirmed`" if rest > 0 else ""
    )


def _ranked(report: TuningReport) -> str:
    rows = [
        (f"{x.gain:.2f}", ", ".join(f"{1e6 * s:.1f}" for s in x.seconds.values()), str(x.options))
        for x in report.ranked[:_ROWS]
    ]
    rest = len(report.ranked) - len(rows)
    return table(("gain", "us", "options"), rows, right=(0,), code=2) + paragraph(
        f"and {rest} more in `ranked`" if rest > 0 else ""
    )


def _failures(report: TuningReport) -> str:
    rows = [(str(a.options), a.reason) for a in report.failures[:_ROWS]]
    return closed_part(f"{len(report.failures)} failed", table(("options", "why"), rows, code=0))
