"""The sizes that a kernel's body runs with, where it has a view of the ones given (`View`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import mul

from tcsym.codegen.scalar.text import Function
from tcsym.index.expr import ONE, Index, all_of, choose, eq, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import Kernel, View


def viewed_values(view: View) -> dict[str, Index]:
    """Each size of the body in terms of those given, if it differs."""
    condition = all_of(eq(var(u), 1) for u in view.units)
    values: dict[str, Index] = {}
    for group in view.groups:
        *ones, last = group
        product = reduce(mul, map(var, group), ONE)
        values[last] = choose(condition, product, var(last))
        values.update((x, choose(condition, ONE, var(x))) for x in ones)
    return values


def body_sizes(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those that the body runs with, in a call with these."""
    values = dict(sizes)
    if kernel.view is not None:
        viewed = viewed_values(kernel.view)
        values |= {name: evaluate(e, sizes) for name, e in viewed.items()}
    return values


def viewed_sizes(f: Function, sizes: tuple[str, ...], view: View) -> str:
    """The array of the body's sizes, in the frame."""
    given = {name: _loaded(f, i) for i, name in enumerate(sizes)}
    held = "true"
    for unit in view.units:
        one = f.result(f"icmp eq i64 {given[unit]}, 1")
        held = f.result(f"and i1 {held}, {one}")
    for group in view.groups:
        product = reduce(lambda a, b: f.result(f"mul i64 {a}, {given[b]}"), group, "1")
        for name in group:
            new = product if name == group[-1] else "1"
            given[name] = f.result(f"select i1 {held}, i64 {new}, i64 {given[name]}")
    array = f.alloca(f"[{len(sizes)} x i64]", 8)
    for i, value in enumerate(given.values()):
        place = f.result(f"getelementptr i64, ptr {array}, i64 {i}")
        f.do(f"store i64 {value}, ptr {place}, align 8")
    return array


def _loaded(f: Function, place: int) -> str:
    at = f.result(f"getelementptr i64, ptr %sizes, i64 {place}")
    return f.result(f"load i64, ptr {at}, align 8")
