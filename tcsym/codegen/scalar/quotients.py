# SPDX-License-Identifier: Apache-2.0
"""Quotients and remainders of a loop's counter -> counters beside it: additions, no divisions.

Loops that threads share are one loop (`schedule/order/coalesce.py`), of whose counter the loops
inside are quotient and remainder.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import Number, as_val, atom_variables, number
from tcsym.codegen.scalar.least import least
from tcsym.codegen.scalar.values import Val
from tcsym.index.expr import FloorDiv, Index, Mod, floordiv, mod, var
from tcsym.ir.loops import Loop, Node


class Quotient(Struct, frozen=True):
    """counter / divisor and the remainder: in the first iteration, and their registers in all."""

    divisor: Index
    first: tuple[Number, Number]
    now: tuple[str, str]


def begin_quotients(context: Context, loop: Loop) -> tuple[Quotient, ...]:
    """Those at which the loops inside stand; written in front of the loop."""
    f, out = context.function, list[Quotient]()
    for divisor in dict.fromkeys(_divisors(loop)):
        low = least(context, divisor)
        if low is not None and low >= 0:
            of = (floordiv(loop.lower, divisor), mod(loop.lower, divisor))
            first = (number(context, of[0]), number(context, of[1]))
            out.append(Quotient(divisor, first, (f.new_register(), f.new_register())))
    return tuple(out)


def _divisors(loop: Loop) -> list[Index]:
    """Of the counter, in the loops of one iteration around all that is inside."""
    out: list[Index] = []
    node: Node = loop.body
    while isinstance(node, Loop) and (node.upper - node.lower).as_int() == 1:
        for atom, _ in node.lower.terms:
            if isinstance(atom, FloorDiv | Mod) and atom.dividend == var(loop.variable):
                out.append(atom.divisor)
        node = node.body
    return [x for x in out if x.as_int() is None]


def note_quotients(context: Context, variable: str, found: tuple[Quotient, ...]) -> None:
    """In the loop: the registers stand for what they count."""
    for q in found:
        for kind, register in zip((FloorDiv, Mod), q.now):
            atom = kind(var(variable), q.divisor)
            names = context.bounds(tuple(atom_variables(atom)))
            key = ("atom", atom, names, context.width)
            context.function.remember(key, Val(register, "i64"))


def next_quotients(context: Context, found: tuple[Quotient, ...], before: str) -> list[str]:
    """At the end of an iteration: their next values; the lines that begin one.

    `before`: the block in front of the loop. A divisor of 0 leaves both 0.
    """
    f, phis = context.function, list[str]()
    for q in found:
        quotient, rest = q.now
        divisor = as_val(number(context, q.divisor)).text
        up = f.result(f"add nsw i64 {rest}, 1")
        wraps = f.result(f"icmp sge i64 {up}, {divisor}")
        more = f.result(f"icmp eq i64 {up}, {divisor}")
        step = f.result(f"zext i1 {more} to i64")
        following = (
            f.result(f"add nsw i64 {quotient}, {step}"),
            f.result(f"select i1 {wraps}, i64 0, i64 {up}"),
        )
        for now, first, new in zip(q.now, q.first, following):
            start = f"[ {as_val(first).text}, %{before} ]"
            phis.append(f"  {now} = phi i64 {start}, [ {new}, %{f.current} ]")
    return phis
