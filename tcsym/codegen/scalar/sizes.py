# SPDX-License-Identifier: Apache-2.0
"""Code for the sizes that a kernel's body runs with, where it has a view (`tcsym.ir.views`)."""

from __future__ import annotations

from functools import reduce

from tcsym.codegen.scalar.text import Function
from tcsym.ir.loops import View


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
