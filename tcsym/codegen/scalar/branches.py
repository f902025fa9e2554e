# SPDX-License-Identifier: Apache-2.0
"""Branches: statements, values that depend on one, and run-time checks."""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Val
from tcsym.ir.compiled import Fault


def choose(
    context: Context,
    condition: Val,
    then: Callable[[], Val],
    orelse: Callable[[], Val],
    lanes: int,
    likely: bool | None = None,
) -> Val:
    """then() or orelse(), each emitted in a block of its own; the result has that many lanes."""

    def spread(arm: Callable[[], Val]) -> Callable[[], list[Val]]:
        return lambda: [context.code.spread(arm(), lanes)]

    return choose_each(context, condition, spread(then), spread(orelse), likely)[0]


def choose_each(
    context: Context,
    condition: Val,
    then: Callable[[], list[Val]],
    orelse: Callable[[], list[Val]],
    likely: bool | None = None,
) -> list[Val]:
    """Several values from then() or orelse(), of the same types."""
    f = context.function
    labels = f.new_label("then"), f.new_label("else")
    end = f.new_label("end")
    f.branch(condition.text, *labels, likely)
    arms: list[list[Val]] = []
    blocks: list[str] = []
    for label, arm in zip(labels, (then, orelse)):
        f.start_block(label)
        with f.scope():
            arms.append(arm())
        blocks.append(f.current)
        f.jump(end)
    f.start_block(end)
    chosen = []
    for a, b in zip(*arms, strict=True):
        incoming = f"[ {a.text}, %{blocks[0]} ], [ {b.text}, %{blocks[1]} ]"
        chosen.append(a._replace(text=f.result(f"phi {a.type} {incoming}")))
    return chosen


def record(context: Context, fault: Fault) -> None:
    """Note the fault for the kernel's result; the first one is kept, what follows from it is not.

    Threads race, so of several independent ones any is reported.
    """
    f, code = context.function, context.faults.code(fault)
    before = f.result(f"load i32, ptr {context.error}, align 4")
    is_first = f.result(f"icmp eq i32 {before}, 0")
    kept = f.result(f"select i1 {is_first}, i32 {code}, i32 {before}")
    f.do(f"store i32 {kept}, ptr {context.error}, align 4")


def fail_if(context: Context, bad: Val, fault: Fault) -> None:
    """Record the fault if `bad` holds, in some active lane."""
    bad = context.code.and_(context.mask, bad) or bad
    if bad.text == "false":
        return
    with context.function.when(context.code.any_lane(bad).text, likely=False):
        record(context, fault)


def in_blocks(
    context: Context, held: Val, arms: list[Callable[[], None]], rare_else: bool = False
) -> None:
    """`rare_else`: the first arm is the common one (full tiles), so the other stays by itself."""
    f = context.function
    labels = [f.new_label("then"), f.new_label("else")][: len(arms)]
    end = f.new_label("end")
    f.branch(held.text, labels[0], labels[1] if len(labels) > 1 else end)
    scopes = [f.scope, f.rare if rare_else else f.scope]
    for label, arm, scope in zip(labels, arms, scopes):
        f.start_block(label)
        with scope():
            arm()
        f.jump(end)
    f.start_block(end)
