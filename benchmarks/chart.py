# SPDX-License-Identifier: Apache-2.0
"""`./dev bench chart [RECORD.json ...]`: the chart and the table of docs/performance.md.

A record of `./dev bench --json` is first shortened into docs/pictures/performance.json, from which
the chart beside it and the table are made; without one they are made again from what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import log2
from pathlib import Path
from typing import Any

from benchmarks.merge import merged
from benchmarks.report import read_record
from benchmarks.statistics import geometric_mean

Record = Mapping[str, Any]
PAGE = Path("docs/performance.md")
DATA = Path("docs/pictures/performance.json")
CHART = DATA.with_suffix(".svg")
MARKER = "<!-- made by ./dev bench chart -->\n"
END = "<!-- end -->"
GROUPS = {
    "matrix products": ("tmm", "c3"),
    "small products in batches": ("tbmm",),
    "tensor contractions": ("tccg", "kron3"),
    "dense layers, attention": ("mlp", "attention"),
    "convolutions": ("conv", "gconv", "dwconv", "wavenet"),
    "recurrent layers": ("rnn", "qrnn"),
    "softmax, norms, moments": ("softmax", "layernorm", "groupnorm", "moments"),
    "sums, distances, pooling": ("rowsum", "mindist", "maxpool"),
    "maps, gathers, copies": ("gelu", "add", "lut", "outer", "transpose"),
}
TITLE = "Time of the fastest other library ÷ time of tcsym"
LIBRARIES = ("numpy", "torch", "jax", "numba", "halide")
NAMES = {"jax": "JAX", "halide": "Halide"}

# Pixels. Greys and the blue can be read on white and on black.
_WIDTH, _LEFT, _ROW, _TOP = 600, 192, 25, 44
_GREY, _BLUE, _BELOW = "#7b8088", "#3f84c9", "#c8702a"
_LEAST, _MOST = 0.5, 8.0


def shortened(record: Record) -> dict[str, Any]:
    """What the chart and the table need of it, and what says how it was measured."""
    kept = ("date", "commit", "command", "versions")
    machines = {threads: m["name"] for threads, m in record["machines"].items()}
    rows = [
        {
            "label": row["label"],
            "class": row["class"],
            "threads": row["threads"],
            "ms": round(row["contestants"]["tcsym"]["min_ms"], 5),
            "ratios": {name: round(r["value"], 3) for name, r in row["ratios"].items()},
        }
        for row in record["rows"]
    ]
    return {**{name: record[name] for name in kept}, "machines": machines, "rows": rows}


def group_of(label: str) -> str:
    for group, beginnings in GROUPS.items():
        if label.startswith(beginnings):
            return group
    raise SystemExit(f"no group of the chart has {label}")


def best(row: Record) -> float:
    """Time of the fastest other library over ours."""
    return min(row["ratios"].values())


def svg_text(data: Record) -> str:
    """The chart: a bar for each group, its geometric mean; a dot for each kernel."""
    values: dict[str, list[float]] = {group: [] for group in GROUPS}
    for row in data["rows"]:
        values[group_of(row["label"])].append(best(row))
    height = _TOP + _ROW * len(values) + 26
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12.5" fill="{_GREY}">',
        f"<title>{escape(TITLE)}</title>",
        f'<text x="0" y="15" font-size="13.5" font-weight="600">{escape(TITLE)}</text>',
        *_scale(height),
    ]
    for k, (group, found) in enumerate(values.items()):
        lines += _bar(_TOP + _ROW * k, group, found)
    lines.append(f'<text x="0" y="{height - 4}" font-size="11">{escape(_foot(data))}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _x(value: float) -> float:
    part = log2(max(_LEAST, min(_MOST, value)) / _LEAST) / log2(_MOST / _LEAST)
    return round(_LEFT + part * (_WIDTH - _LEFT - 46), 1)


def _scale(height: int) -> Iterator[str]:
    bottom = height - 24
    for value in (0.5, 1, 2, 4, 8):
        x, weight = _x(value), 1.6 if value == 1 else 0.5
        yield (
            f'<line x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{bottom}" stroke="{_GREY}" '
            f'stroke-width="{weight}"/>'
        )
        label = "as fast" if value == 1 else f"{value:g}×"
        yield f'<text x="{x}" y="{_TOP - 13}" font-size="11" text-anchor="middle">{label}</text>'


def _bar(y: int, group: str, values: Sequence[float]) -> Iterator[str]:
    mean, one = geometric_mean(values), _x(1)
    low, high = sorted((one, _x(mean)))
    colour = _BLUE if mean >= 1 else _BELOW
    yield f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(group)}</text>'
    yield (
        f'<rect x="{low}" y="{y + 3}" width="{max(1.0, round(high - low, 1))}" height="14" '
        f'fill="{colour}" fill-opacity="0.55"/>'
    )
    for value in values:
        yield f'<circle cx="{_x(value)}" cy="{y + 10}" r="3" fill="{colour}"/>'
    yield f'<text x="{_WIDTH}" y="{y + 14}" text-anchor="end" font-weight="600">{mean:.2f}×</text>'


def _foot(data: Record) -> str:
    (threads, machine), *_ = sorted(data["machines"].items())
    core = "one core" if threads == "1" else f"{threads} cores"
    return (
        f"{core} of an {machine}, {data['date'][:10]}, commit {data['commit'][:8]}; "
        f"a dot is a kernel, of {len(data['rows'])}; a bar is the mean"
    )


def table_text(data: Record) -> str:
    """Each library alone, and the best of all for each kernel."""
    heads = [NAMES.get(name, name) for name in LIBRARIES]
    lines = [
        f"| | kernels | {' | '.join(heads)} | fastest of them | slowest kernel |",
        f"|---|--:|{'--:|' * len(heads)}--:|--:|",
    ]
    parts: dict[str, list[Record]] = {}
    for row in data["rows"]:
        parts.setdefault(row["class"], []).append(row)
    for kind, rows in {**parts, "all": data["rows"]}.items():
        alone = (_alone(rows, name) for name in LIBRARIES)
        cells = [f"{geometric_mean(v):.2f}" if v else "" for v in alone]
        least = min(map(best, rows))
        cells += [f"**{geometric_mean(map(best, rows)):.2f}**", f"{least:.2f}"]
        lines.append(f"| {kind} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _alone(rows: Sequence[Record], library: str) -> list[float]:
    """The best that users of the library can write for each kernel that it has."""
    found = []
    for row in rows:
        own = [v for name, v in row["ratios"].items() if name.split()[0] == library]
        if own:
            found.append(min(own))
    return found


def write(data: Record, page: Path = PAGE, chart: Path = CHART) -> None:
    chart.write_text(svg_text(data))
    head, _, rest = page.read_text().partition(MARKER)
    page.write_text(f"{head}{MARKER}\n{table_text(data)}\n\n{END}{rest.partition(END)[2]}")


def main(given: Sequence[str]) -> None:
    if given:
        (record,) = merged(read_record(Path(path)) for path in given)
        DATA.write_text(json.dumps(shortened(record), indent=1) + "\n")
    write(json.loads(DATA.read_text()))
