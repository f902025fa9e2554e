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
    """Note the fault for the kernel's result (of several, any one is reported)."""
    code = context.faults.code(fault)
    context.function.do(f"store i32 {code}, ptr {context.error}, align 4")


def fail_if(context: Context, bad: Val, fault: Fault) -> None:
    """Record the fault if `bad` holds, in some active lane."""
    bad = context.code.and_(context.mask, bad) or bad
    if bad.text == "false":
        return
    with context.function.when(context.code.any_lane(bad).text, likely=False):
        record(context, fault)
