# SPDX-License-Identifier: Apache-2.0
"""Stats -> HTML of a cell."""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.display.page import closed_part, framed, paragraph, side_by_side, table
from tcsym.runtime.stats import Decision, Stats

_ROWS = 20  # of a table: the last


def stats_html(stats: Stats) -> str:
    """What `str` says, as tables; of long lists the last."""
    told = f"compilations: {stats.compilations}, cache hits: {stats.cache_hits}"
    if stats.evictions:
        told += f", evictions: {stats.evictions}"
    variants = [
        (", ".join(v.layouts), "cache" if v.cached else _sum(v.milliseconds))
        for v in stats.variants
    ]
    calls = [(str(n), version) for version, n in stats.dispatch.items() if n]
    stages = [(stage, f"{ms:.1f}") for stage, ms in stats.milliseconds.items()]
    return framed(
        "Stats",
        told,
        side_by_side(
            _last(("compiled for", "ms"), variants, "variants", (1,)),
            _last(("calls", "version"), calls, "dispatch", (0,)),
            closed_part("ms by stage", table(("stage", "ms"), stages, right=(1,))),
        ),
        _last(("sizes", "chosen", "why", "us"), [*map(_decided, stats.decisions)], "decisions"),
        _last(("failed",), [(text,) for text in stats.failures], "failures"),
        _last(("fall-back",), [(text,) for text in stats.fallbacks], "fallbacks"),
    )


def _sum(milliseconds: Sequence[tuple[str, float]]) -> str:
    return f"{sum(ms for _, ms in milliseconds):.0f}"


def _decided(d: Decision) -> tuple[str, ...]:
    where = ", ".join(f"{name} = {value}" for name, value in d.sizes) or "all"
    return where, d.chosen, d.why, "; ".join(f"{name} {1e6 * s:.2f}" for name, s in d.seconds)


def _last(
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    field: str,
    right: Sequence[int] = (),
) -> str:
    """A table, with what else there is."""
    rest = len(lines) - _ROWS
    more = paragraph(f"and {rest} before in `{field}`" if rest > 0 else "")
    return table(columns, lines[-_ROWS:], right) + more
