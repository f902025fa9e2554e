"""Values that depend on a branch, and run-time checks."""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.context import Context
from tcsym.codegen.values import Val
from tcsym.compiled import Fault


def choose(
    context: Context,
    condition: Val,
    then: Callable[[], Val],
    orelse: Callable[[], Val],
    lanes: int,
    likely: bool | None = None,
) -> Val:
    """then() or orelse(), each emitted in a block of its own; the result has that many lanes."""
    f = context.function
    labels = f.new_label("then"), f.new_label("else")
    end = f.new_label("end")
    f.branch(condition.text, *labels, likely)
    incoming = []
    kind = ""
    for label, arm in zip(labels, (then, orelse)):
        f.start_block(label)
        with f.scope():
            value = context.code.spread(arm(), lanes)
        incoming.append(f"[ {value.text}, %{f.current} ]")
        kind = value.kind
        f.jump(end)
    f.start_block(end)
    result = Val("", kind, lanes)
    return result._replace(text=f.result(f"phi {result.type} {', '.join(incoming)}"))


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
