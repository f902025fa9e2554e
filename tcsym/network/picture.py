# SPDX-License-Identifier: Apache-2.0
"""Plan -> a picture of its steps: a row for each step that waits for those above, as SVG."""

from __future__ import annotations

from html import escape

from tcsym.network.plan import Plan

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 180, 44, 24, 56, 16


def svg(plan: Plan) -> str:
    """Inputs above, results below; an arrow is a tensor, and its color is its storage's."""
    boxes, arrows = _graph(plan)
    rows: dict[int, list[str]] = {}
    for name, row in _rows(boxes, arrows).items():
        rows.setdefault(row, []).append(name)
    at: dict[str, tuple[float, float]] = {}
    widest = max(len(names) for names in rows.values())
    for row, names in rows.items():
        left = _MARGIN + (widest - len(names)) * (_WIDTH + _ACROSS) / 2
        for k, name in enumerate(names):
            at[name] = left + k * (_WIDTH + _ACROSS), _MARGIN + row * (_HEIGHT + _DOWN)
    width = 2 * _MARGIN + widest * (_WIDTH + _ACROSS) - _ACROSS
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _DOWN) - _DOWN
    parts = [_arrow(at[a], at[b], label, color) for a, b, label, color in arrows]
    parts += [_box(at[name], *text) for name, text in boxes.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>' + "".join(parts) + "</svg>"
    )


Boxes = dict[str, tuple[str, str, str]]  # fill, two lines of text
Arrows = list[tuple[str, str, str, str]]  # from, to, label, color


def _graph(plan: Plan) -> tuple[Boxes, Arrows]:
    boxes: Boxes = {}
    arrows: Arrows = []
    maker = {name: s.name for s in plan.steps for name in s.writes}
    for t in plan.tensors:
        if t.role in ("input", "inout"):
            boxes[f"in {t.name}"] = ("#eef3fb", t.name, _shape(plan, t.name))
    for s in plan.steps:
        count = len(s.program.body)
        boxes[s.name] = ("#fff", s.name, f"{count} statement{'' if count == 1 else 's'}")
        for name in s.reads:
            source = maker.get(name, f"in {name}")
            arrows.append((source, s.name, name if name in maker else "", _color(plan, name)))
    for t in plan.tensors:
        if t.role == "output":
            boxes[f"out {t.name}"] = ("#eefbf0", t.name, _shape(plan, t.name))
            arrows.append((maker[t.name], f"out {t.name}", "", _color(plan, t.name)))
    return boxes, arrows


def _shape(plan: Plan, name: str) -> str:
    t = plan.tensor(name)
    text = f"{t.dtype}({', '.join(map(str, t.shape))})"
    return text if len(text) <= 28 else text[:27] + "…"


def _color(plan: Plan, name: str) -> str:
    """Another hue for each storage; grey for what callers hold."""
    storage = plan.tensor(name).storage
    return "#888" if storage is None else f"hsl({storage * 137 % 360} 55% 42%)"


def _rows(boxes: Boxes, arrows: Arrows) -> dict[str, int]:
    """The length of the longest way to each box, from those without arrows to them."""
    rows = dict.fromkeys(boxes, 0)
    for _ in boxes:
        for a, b, _label, _color in arrows:
            rows[b] = max(rows[b], rows[a] + 1)
    return rows


def _box(at: tuple[float, float], fill: str, title: str, text: str) -> str:
    x, y = at
    middle = x + _WIDTH / 2
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" '
        f'stroke="#555"/><text x="{middle}" y="{y + 18}" text-anchor="middle" font-weight="bold">'
        f'{escape(title)}</text><text x="{middle}" y="{y + 35}" text-anchor="middle" fill="#555">'
        f"{escape(text)}</text>"
    )


def _arrow(a: tuple[float, float], b: tuple[float, float], label: str, color: str) -> str:
    x0, y0 = a[0] + _WIDTH / 2, a[1] + _HEIGHT
    x1, y1 = b[0] + _WIDTH / 2, b[1] - 1
    bend = (y1 - y0) / 2
    line = (
        f'<path d="M{x0},{y0} C{x0},{y0 + bend} {x1},{y1 - bend} {x1},{y1}" fill="none" '
        f'stroke="{color}" stroke-width="1.6" marker-end="url(#end)"/>'
    )
    if not label:
        return line
    x, y = (x0 + x1) / 2 + 6, (y0 + y1) / 2
    return f'{line}<text x="{x}" y="{y}" fill="{color}">{escape(label)}</text>'
