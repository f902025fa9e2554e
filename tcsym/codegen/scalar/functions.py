# SPDX-License-Identifier: Apache-2.0
"""Shared loops: the functions, and the calls in their place."""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar.alike import Call, Function
from tcsym.codegen.scalar.backend import Backend
from tcsym.codegen.scalar.context import Bound, Context, Faults
from tcsym.codegen.scalar.index_code import as_val, number, widened
from tcsym.codegen.scalar.registers import Registers
from tcsym.codegen.scalar.text import Function as Text
from tcsym.codegen.scalar.text import Module
from tcsym.codegen.scalar.values import Code
from tcsym.ir.allocate import allocate
from tcsym.ir.loops import Node
from tcsym.target.machine import Machine


def define(
    function: Function,
    whole: Module,
    machine: Machine,
    backend: Backend,
    statement: Callable[[Context, Node], None],
) -> None:
    """The function as a part of the module: i64 numbers, then pointers to its buffers."""
    whole.part(function.name, lambda part: _write(function, part, machine, backend, statement))


def _write(
    function: Function,
    part: Module,
    machine: Machine,
    backend: Backend,
    statement: Callable[[Context, Node], None],
) -> None:
    kernel = function.kernel
    numbers = (*kernel.sizes, *function.variables)
    parameters = [f"i64 %v{i}" for i in range(len(numbers))]
    parameters += [f"ptr noalias %p{i}" for i in range(len(kernel.arguments))]
    f = Text(part, f"define void @{function.name}({', '.join(parameters)}) #1")
    context = Context(
        kernel=kernel,
        machine=machine,
        module=part,
        buffers={b.name: b for b in kernel.buffers},
        faults=Faults(),
        backend=backend,
        memory=backend.memory(kernel, machine),
        code=Code(f, machine),
        registers=Registers(f),
        error="",
        storage=allocate(kernel),
        arena="",
        host=None,
        calls={},
        variables={name: Bound(f"%v{i}") for i, name in enumerate(numbers)},
        pointers={name: f"%p{i}" for i, name in enumerate(kernel.arguments)},
    )
    statement(context, kernel.body)
    f.do("ret void")
    f.finish()


def call(context: Context, c: Call) -> None:
    """Call the function in place of its loop."""
    arguments = [widened(context.code, as_val(number(context, n))).typed for n in c.numbers]
    arguments += [f"ptr {context.pointers[name]}" for name in c.buffers]
    kinds = ", ".join(a.split(" ")[0] for a in arguments)
    context.module.declare("void", c.function, kinds)
    context.function.do(f"call void @{c.function}({', '.join(arguments)})")
    context.registers.forget()
    for name in c.buffers:
        context.note_store(name)
