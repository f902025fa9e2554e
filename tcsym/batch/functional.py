# SPDX-License-Identifier: Apache-2.0
"""Program -> the same with new tensors in place of what it updates.

def f(inout float(N) Y, float(N) X) -> (s) { Y(i) += X(i)  s +=! Y(i) }
def f(float(N) Y, float(N) X) -> (s, float(N) Y_new) {
  Y_new(i0) = Y(i0)
  Y_new(i) += X(i)
  s +=! Y_new(i)
}
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.names import Names, names_in, written_plainly
from tcsym.frontend.program import Program, Range, Read, Statement, Tensor
from tcsym.frontend.rename import Renaming
from tcsym.frontend.unparse import source_of
from tcsym.index.expr import ZERO, var


def functional_program(program: Program) -> Program:
    """The def of the same name, as its text is read back; itself, if it updates nothing."""
    if not program.inouts:
        return program
    program = written_plainly(program)
    names = Names({*names_in(program)})
    new = {t.name: names.fresh(f"{t.name}_new") for t in program.inouts}
    index = [names.fresh(f"i{k}") for k in range(max(len(t.shape) for t in program.inouts))]

    def copied(t: Tensor) -> Statement:
        at = tuple(map(var, index[: len(t.shape)]))
        domain = tuple(Range(i, ZERO, e, False) for i, e in zip(index, t.shape))
        value = Read(t.name, at, t.dtype)
        return Statement(f"{t.name}_new", new[t.name], at, "=", False, domain, value)

    given = tuple(replace(t, role="input") for t in program.inputs)
    results = tuple(replace(t, name=new[t.name], role="output") for t in program.inouts)
    tensors = (*given, *program.outputs, *results, *program.by_role("temporary"))
    body = (*map(copied, program.inouts), *Renaming(new).items(program.body))
    return source_of(replace(program, tensors=tensors, body=body, checks=()))
