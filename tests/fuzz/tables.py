# SPDX-License-Identifier: Apache-2.0
"""Tables that are set before loops and filled by them: recurrences, dynamic programs, positions."""

from __future__ import annotations

from tcsym.index.expr import Index, index, var
from tcsym.types import DType
from tests.fuzz.expressions import Value, number, tame
from tests.fuzz.statements import pointwise
from tests.fuzz.writer import Writer, left_side, variables, where

STEP_POINTS = 16  # as many as the reference computes at once while it takes one step of loops


def filled(w: Writer) -> None:
    """A table that is set, then filled by a loop step by step, and perhaps changed behind it."""
    n, rest, name = var(w.rng.choice(w.sizes)), variables(w.shape(1), "j"), w.fresh()
    _set(w, name, {"t": n + 1, **rest})
    step = w.scope({**rest, "t": n})
    e = f"sin(float32({tame(number(step, 2)).text}))"
    to, came = w.rng.choice([("t + 1", "t"), (f"{n} - 1 - t", f"{n} - t")])
    old = left_side(name, [came, *rest])
    value = w.rng.choice([f"0.5 * {old} + {e}", f"{old} * {e}", f"sin({old}) - {e}"])
    if w.chance(0.3):  # what was there before
        value = f"{value} + 0.25 * {left_side(name, [to, *rest])}"
    elif w.chance(0.3):  # what was set, or was made long ago
        value = f"{value} + 0.25 * {left_side(name, [f'{n} - ({came})', *rest])}"
    op = w.rng.choice(["=", "=", "=", "+="])
    body = f"{left_side(name, [to, *rest])} {op} {value}{where(w, step, loop='t')}"
    if w.chance(0.3):
        body = f"if t % 2 == {w.rng.randint(0, 1)} {{ {body} }}"
    w.items.append(f"for t in {n} {{\n  {body}\n}}")
    if w.chance(0.3):
        whole = left_side(name, ["t", *rest])
        part = w.rng.choice([f"0:{n} + 1", f"1:{n} + 1", f"0:{n}"])
        ranges = ", ".join([f"t in {part}", *(f"{v} in 0:{x}" for v, x in rest.items())])
        w.items.append(f"{whole} = 0.5 * {whole} where {ranges}")
    w.add(name, Value("", DType.FLOAT32, 1.0), (n + 1, *rest.values()), 1e3)


def program(w: Writer) -> None:
    """A dynamic program over two loops: borders, bands, triangles, its rows set in between."""
    n, rest, name = var(w.rng.choice(w.sizes)), variables(w.shape(1), "b"), w.fresh()
    m = var(w.rng.choice(w.sizes))
    form = w.rng.choice(["table", "table", "band", "triangle"])
    m = m if form == "table" else n
    w.points.append((n, m, index(STEP_POINTS)))
    shape = {"i": n + 1, "j": m + 1, **rest}
    _set(w, name, shape)
    for at in w.rng.sample([["0", "j"], ["i", "0"], ["0", "0"]], w.rng.randint(0, 2)):
        own = {v: x for v, x in shape.items() if v in (*at, *rest)}
        _set(w, name, own, left_side(name, [*at, *rest]))
    step = w.scope({"i": n, "j": m, **rest})
    e = f"sin(float32({tame(number(step, 1)).text}))"

    def at_(i: str, j: str) -> str:
        return left_side(name, [i, j, *rest])

    reads = w.rng.sample([at_("i", "j"), at_("i + 1", "j"), at_("i", "j + 1")], w.rng.randint(1, 3))
    value = f"{e} + 0.4 * ({' + '.join(reads)})"
    if w.chance(0.25):
        value = f"{value} + 0.1 * {at_('i + 1', 'j + 1')}"
    inner = {"table": f"{m}", "band": f"max(i - 1, 0):min(i + 2, {n})", "triangle": "0:i + 1"}
    ranges = ", ".join(f"{v} in 0:{x}" for v, x in rest.items())
    line = f"{at_('i + 1', 'j + 1')} = {value}" + (f" where {ranges}" if ranges else "")
    row = ""
    if w.chance(0.3):
        ranges = ", ".join([f"q in 0:{m} + 1", *(f"{v} in 0:{x}" for v, x in rest.items())])
        row = f"  {at_('i + 1', 'q')} = 0.5 * {at_('i', 'q')} where {ranges}\n"
    w.items.append(f"for i in {n} {{\n{row}  for j in {inner[form]} {{\n    {line}\n  }}\n}}")
    w.add(name, Value("", DType.FLOAT32, 1.0), tuple(shape.values()), 1e6)


def placed(w: Writer) -> None:
    """States that a loop reads where a tensor says that earlier steps were made: a tree, of which
    there may be some that were not (an error)."""
    keys = [t for t in w.inputs if len(t.shape) == 1 and t.bound is not None]
    if not keys:
        pointwise(w)
        return
    key = w.rng.choice(keys)
    n, rest, name = key.shape[0], variables(w.shape(1), "j"), w.fresh()
    is_set = w.chance(0.4)
    if is_set:
        _set(w, name, {"t": n + 1, **rest})
    else:
        _set(w, name, rest, left_side(name, ["0", *rest]))
    step = w.scope({**rest, "t": n})
    e = f"sin(float32({tame(number(step, 1)).text}))"
    forms = [f"{key.name}(t) % (t + 1)", f"min(max({key.name}(t), 0), t)"]
    forms += [f"{key.name}(t) % ({n} + 1)"] * (2 if is_set else 1)
    at = w.rng.choice(forms)
    w.may_fail = w.may_fail or (at == forms[-1] and not is_set)
    value = f"0.5 * {left_side(name, [at, *rest])} + {e}"
    if w.chance(0.3):
        value = f"{value} + 0.25 * {left_side(name, ['t', *rest])}"
    ranges = where(w, step, loop="t")
    w.items.append(f"for t in {n} {{\n  {left_side(name, ['t + 1', *rest])} = {value}{ranges}\n}}")
    if w.chance(0.6):
        w.declared.add(name)
    w.add(name, Value("", DType.FLOAT32, 1.0), (n + 1, *rest.values()), 1e3)


def _set(w: Writer, name: str, shape: dict[str, Index], left: str = "") -> None:
    """Elements of a table before a loop: to a number, a function of indices, or what is given."""
    s = w.scope(shape)
    value = "0.5"
    if w.chance(0.3) and shape:
        value = f"0.1 * float32({w.rng.choice([*shape])})"
    elif w.chance(0.6):
        value = f"sin(float32({tame(number(s, 1)).text}))"
    ranges = ", ".join(f"{v} in 0:{x}" for v, x in shape.items())
    text = f"{left or left_side(name, shape)} = float32({value})"
    w.items.append(text + (f" where {ranges}" if ranges else ""))
