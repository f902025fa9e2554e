# SPDX-License-Identifier: Apache-2.0
"""The function of a region: its parameters, and what is known inside of it."""

from __future__ import annotations

from collections.abc import Collection

from tcsym.codegen.scalar.context import Bound, Context
from tcsym.codegen.scalar.registers import Registers
from tcsym.codegen.scalar.text import Function
from tcsym.codegen.scalar.values import Code, Val
from tcsym.ir.regions import Region


def received(region: Region, exchanged: Collection[str] = ()) -> list[str]:
    """Parameters for its numbers, formulas and pointers. exchanged: buffers that others write
    meanwhile, so that they have to be read again."""
    return [
        *(f"i64 %v{i}" for i in range(len(region.numbers))),
        *(f"i64 %f{i}" for i in range(len(region.formulas))),
        *(
            f"ptr{' noalias' * (name not in exchanged)} %p{i}"
            for i, name in enumerate(region.pointers)
        ),
    ]


def inside(context: Context, region: Region, f: Function) -> Context:
    """That of the function `f`, which has the parameters `received`, `%error` and `%arena`."""
    known = {name: Bound(None, value) for name, value in region.known}
    return Context(
        kernel=context.kernel,
        machine=context.machine,
        module=f.module,
        buffers=context.buffers,
        faults=context.faults,
        backend=context.backend,
        memory=context.memory.of_another(),
        code=Code(f, context.machine),
        registers=Registers(f),
        error="%error",
        storage=context.storage,
        arena="%arena",
        host=None,
        calls=context.calls,
        variables=known | {name: Bound(f"%v{i}") for i, name in enumerate(region.numbers)},
        pointers={n: f"%p{i}" for i, n in enumerate(region.pointers)},
        formulas={atom: Val(f"%f{i}", "i64") for i, atom in enumerate(region.formulas)},
        ranges=context.ranges,
        intervals=context.intervals,
        facts=context.facts,
        multiples=context.multiples,
    )
