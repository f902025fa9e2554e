# SPDX-License-Identifier: Apache-2.0
"""What schedules are chosen by: target, options, the names in use, and what was chosen so far."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Compare, Read
from tcsym.ir.loops import Kernel, Node, Value, Verify, value_dtype
from tcsym.ir.traverse import value_children
from tcsym.mapping.given import plan_asked
from tcsym.options import Options
from tcsym.schedule.analysis.loops import statements_in
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.chosen import Choice, Note
from tcsym.target.machine import Machine
from tcsym.trees import preorder
from tcsym.types import DType


class Setting(Struct, frozen=True):
    """`names`, `record` and `unmet` grow while a kernel is mapped.

    record: choices and notes, in the order in which they were made.
    whole: versions that few sizes need are there, and not left out. tells_all: choices say all
        that is proposed, also what is never reached. unmet: what options ask for in vain.
    is_seldom: the nest runs for few inputs, and gets but one version.
    """

    machine: Machine
    options: Options
    names: Names
    record: list[Choice | Note]
    whole: bool = False
    tells_all: bool = False
    unmet: list[str] = field(default_factory=list)
    is_seldom: bool = False

    def of_nest(self, loop: str) -> Setting:
        """That of the nest of that outermost loop; what grows is shared."""
        asked = plan_asked(loop, self.options)
        return replace(self, options=self.options.replace(plan=asked)) if asked else self

    def note(self, nest: str, text: str) -> None:
        self.record.append(Note(nest, text))

    def recording(self) -> Setting:
        """The same with a record of its own."""
        return replace(self, record=[])

    def lanes(self, kernel: Kernel, node: Node) -> int:
        """Elements of the widest type of `node` in a vector; 1: no vectors."""
        return self.machine.lanes(_widest_bits(kernel, node)) if self.options.vectorize else 1

    @property
    def usable(self) -> Machine:
        """The machine, without vectors if options say so."""
        scalar = replace(self.machine, vector_bits=0, dots=())
        return self.machine if self.options.vectorize else scalar


def _widest_bits(kernel: Kernel, node: Node) -> int:
    """Bits of the widest element that the statements of `node` compute with."""
    bits = 8
    for x, _ in statements_in(node):
        if not isinstance(x, Verify):
            bits = max(bits, _computed_bits(kernel.buffer(x.buffer).dtype))
        bits = max(bits, *(_value_bits(v) for v in _computed(x.value)))
    return bits


def _computed(v: Value) -> tuple[Value, ...]:
    """The values of `v` outside subscripts and what is a mask of lanes at once."""
    return tuple(preorder(v, _computed_parts))


def _computed_parts(v: Value) -> tuple[Value, ...]:
    is_mask = isinstance(v, Compare) and as_condition(v) is not None
    return () if is_mask or isinstance(v, Read) else value_children(v)


def _value_bits(v: Value) -> int:
    return _computed_bits(value_dtype(v))


def _computed_bits(dtype: DType) -> int:
    return dtype.accumulator.bits
