# SPDX-License-Identifier: Apache-2.0
"""What schedules are chosen by: target, options, the names in use, and what was chosen so far."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.ir.loops import Kernel, Node
from tcsym.mapping.given import plan_asked
from tcsym.options import Options
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.vector_legality import widest_bits
from tcsym.schedule.chosen import Choice, Note
from tcsym.target.machine import Machine


class Setting(Struct, frozen=True):
    """`names`, `record` and `unmet` grow while a kernel is mapped.

    record: choices and notes, in the order in which they were made.
    whole: versions that few sizes need are there, and not left out. tells_all: choices say all
        that is proposed, also what is never reached. unmet: what options ask for in vain.
    lasting: buffers that others use, outside of the part of a kernel that is seen.
    """

    machine: Machine
    options: Options
    names: Names
    record: list[Choice | Note]
    whole: bool = False
    tells_all: bool = False
    unmet: list[str] = field(default_factory=list)
    lasting: frozenset[str] = frozenset()

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
        return self.machine.lanes(widest_bits(kernel, node)) if self.options.vectorize else 1

    @property
    def usable(self) -> Machine:
        """The machine, without vectors if options say so."""
        scalar = replace(self.machine, vector_bits=0, dots=())
        return self.machine if self.options.vectorize else scalar
