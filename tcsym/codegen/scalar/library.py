# SPDX-License-Identifier: Apache-2.0
"""Functions that are called lane by lane: the C library's, or our own, written into the module.

A target without a C library has our own for what vector code leaves to it: angles and quotients of
any size. They are written once a module (`@tcsym.sin`, ...), compute in double precision, may
branch, and use fused steps, which such a target must have.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar.floats import Num
from tcsym.codegen.scalar.text import Function
from tcsym.codegen.scalar.values import Code, Val

Formula = Callable[..., Num]


def library(name: str, own: Formula, x: Num, *others: Num) -> Num:
    """The C library's function (`name`: that for float64), or `own` where there is none."""
    if x.code.machine.has_libm:
        return x.each(name, *others)
    assert x.code.machine.has_fma
    return _call_own(name, own, x, *others)


def _call_own(name: str, own: Formula, x: Num, *others: Num) -> Num:
    """`own`, a formula of scalar doubles, as a function of the module."""
    code, symbol = x.code, f"tcsym.{name}"
    _define(code, symbol, own, 1 + len(others))
    wide = [code.convert("fpext", a.val, "double") for a in (x, *others)]
    result = code.call_each(symbol, *wide)
    return Num(code, code.convert("fptrunc", result, x.val.kind))


def _define(code: Code, symbol: str, own: Formula, n_args: int) -> None:
    module = code.function.module
    if symbol in module.names:
        return
    module.names.add(symbol)
    names = [f"%x{i}" for i in range(n_args)]
    parameters = ", ".join(f"double {n}" for n in names)
    f = Function(module, f"define internal double @{symbol}({parameters}) #1")
    inner = Code(f, code.machine)
    result = own(*(Num(inner, Val(n, "double")) for n in names))
    f.do(f"ret double {result.val.text}")
    f.finish()


def or_library(name: str, own: Formula, number: Num, holds: Num, *args: Num) -> Num:
    """`number` where that holds for all lanes, else `library` of all of them."""
    code, f = number.code, number.code.function
    label, end = f.new_label("far"), f.new_label("near")
    far = code.any_lane(code.not_(holds.val))
    before = f.current
    f.branch(far.text, label, end, likely=False)
    f.start_block(label)
    with f.scope():
        exact = library(name, own, *args).val
    last = f.current
    f.jump(end)
    f.start_block(end)
    value = number.val
    text = f"phi {value.type} [ {value.text}, %{before} ], [ {exact.text}, %{last} ]"
    return Num(code, value._replace(text=f.result(text)))
