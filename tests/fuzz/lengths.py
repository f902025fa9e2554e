# SPDX-License-Identifier: Apache-2.0
"""Rows of lengths that tensors say, together with guards, gathers, updates, loops and branches."""

from __future__ import annotations

from tcsym.index.expr import Index, var
from tcsym.types import DType
from tests.fuzz.expressions import Scope, Value, condition, number, tame
from tests.fuzz.model import TensorModel
from tests.fuzz.padded import IDENTITIES
from tests.fuzz.ranges import dependent
from tests.fuzz.writer import Writer, left_side, variables, where

OPERATORS = ["+=", "+=", "+=", "max=", "min=", "*="]


def combined(w: Writer) -> None:
    """One or two ragged ranges of one row: alone, onto values, row by row, under branches, or of
    a state's steps; sometimes reduced once more."""
    pointers = [t for t in w.inputs if t.bound is not None]
    if not pointers:
        dependent(w)
        return
    p = w.rng.choice(pointers)
    rest = variables(w.shape(1), "j")
    context = w.rng.choice(["alone", "onto", "rows", "branches", "steps", "steps"])
    left = {"i": p.shape[0], **rest}
    name = w.fresh()
    match context:
        case "steps":
            left = _steps(w, name, p, left)
        case "alone":
            op, term, ranges = _term(w, p, left)
            w.items.append(f"{left_side(name, left)} {op}! {term}{ranges}")
        case _:
            start = w.scope(left)
            first = f"sin(float32({tame(number(start, 1)).text}))"
            w.items.append(f"{left_side(name, left)} = {first}{where(w, start)}")
            _onto(w, name, p, left, context)
    w.declared.add(name)
    w.add(name, Value("", DType.FLOAT32, 1.0), tuple(left.values()), 40.0)
    if w.chance(0.4):
        _again(w, w.made[-1], left)


def _onto(w: Writer, name: str, p: TensorModel, left: dict[str, Index], context: str) -> None:
    loop = "" if context == "onto" else "i"
    lines = []
    for _ in range(2 if context == "branches" else 1):
        op, term, ranges = _term(w, p, left, loop=loop)
        lines.append(f"{left_side(name, left)} {op} {term}{ranges}")
    if context == "onto":
        w.items += lines
    elif context == "rows":
        w.items.append(f"for i in {p.shape[0]} {{\n  {lines[0]}\n}}")
    else:
        test = w.rng.choice(["i % 2 == 0", "i > 1", f"i < {w.sizes[0]}"])
        inner = f"if {test} {{\n    {lines[0]}\n  }} else {{\n    {lines[1]}\n  }}"
        w.items.append(f"for i in {p.shape[0]} {{\n  {inner}\n}}")


def _steps(w: Writer, name: str, p: TensorModel, left: dict[str, Index]) -> dict[str, Index]:
    """A state of rows, each step of which reduces what the one before has left."""
    n = var(w.rng.choice(w.sizes))
    start = w.scope(left)
    first = f"cos(float32({tame(number(start, 0)).text}))"
    w.items.append(f"{left_side(name, ['0', *left])} = {first}{where(w, start)}")
    whole = {"t": n, **left}
    at = "k" if p.bound == p.shape[0] and w.chance(0.7) else "i"
    old = left_side(name, ["t", at, *[x for x in left if x != "i"]])
    op, term, ranges = _term(w, p, whole, loop="t", factor=old)
    new = left_side(name, ["t + 1", *left])
    if w.chance(0.5):
        w.items.append(f"for t in {n} {{\n  {new} {op}! {term}{ranges}\n}}")
    else:
        step = w.scope(whole)
        kept = f"{new} = 0.5 * {left_side(name, ['t', *left])}{where(w, step, loop='t')}"
        w.items.append(f"for t in {n} {{\n  {kept}\n  {new} {op} {term}{ranges}\n}}")
    return {"t": n + 1, **left}


def _term(
    w: Writer, p: TensorModel, left: dict[str, Index], loop: str = "", factor: str = ""
) -> tuple[str, str, str]:
    """An operator, a term of it in float32, and the ranges of all that it runs over."""
    e, n = p.bound, p.shape[0]
    assert e is not None
    own, other = f"{p.name}(i)", f"{p.name}({n} - 1 - i)"
    first = [
        f"k in 0:{own}",
        f"k in {own}:{e}",
        f"k in {own} / 2:{own}",
        f"m = {own}",
        "k in m/2:m",
    ]
    clauses = [w.rng.choice(first[:3])] if w.chance(0.8) else first[3:]
    reduced = {"k": e}
    if w.chance(0.5):
        reduced["p"] = e
        second = [f"0:{own}", f"0:{other}", f"{own} / 2:{own}", "0:k + 1", f"k:{e}"]
        clauses.append(f"p in {w.rng.choice(second)}")
    s = w.scope({**left, **reduced})
    op = w.rng.choice(OPERATORS)
    x = f"tanh(float32({tame(number(s, w.rng.choice([0, 1, 2]))).text}))"
    x = _bounded(s, x, reduced)
    if factor:
        x = w.rng.choice([f"{x} * {factor}", f"tanh({x} + {factor})"])
    if op == "*=":
        x = f"cos({x})"
    if w.chance(0.5):
        x = _guarded(w, s, x, op)
    open_ = {v: extent for v, extent in s.extents.items() if v in left}
    s.extents.clear()
    s.extents.update(open_)
    s.anchored.clear()
    return op, x, where(w, s, ", ".join(clauses), loop=loop)


def _bounded(s: Scope, x: str, reduced: dict[str, Index]) -> str:
    """Times elements at what is reduced: without a bound that tensors' shapes say there is no
    gradient."""
    for v, e in reduced.items():
        fit = [t for t in s.tensors if t.shape == (e,) and t.dtype is not DType.BOOL]
        if fit and s.chance(0.8):
            read = left_side(s.rng.choice(fit).name, [v])
            x = f"{x} * {s.rng.choice(['cos', 'tanh'])}(float32({read}))"
    return x


def _guarded(w: Writer, s: Scope, x: str, op: str) -> str:
    inner = [v for v in ("k", "p") if v in s.extents]
    among = [condition(s, 1), f"{inner[-1]} {w.rng.choice(['<', '>=', '!='])} i"]
    if len(inner) > 1:
        among += ["k != p", "p <= k", "k + p > 2"]
    other = IDENTITIES.get(op, "0.5") if w.chance(0.7) else "0.25"
    return f"({w.rng.choice(among)} ? {x} : {other})"


def _again(w: Writer, made: TensorModel, left: dict[str, Index]) -> None:
    """A sum of the sums."""
    name = w.fresh()
    kept = {v: e for v, e in left.items() if v == "j"}
    s = w.scope(left)
    op = w.rng.choice(["+=", "max=", "+="])
    term = f"tanh({left_side(made.name, left)})"
    w.items.append(f"{left_side(name, kept)} {op}! {term}{where(w, s)}")
    w.declared.add(name)
    w.add(name, Value("", DType.FLOAT32, 1.0), tuple(kept.values()), 40.0)
