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


class Tiling(Struct, frozen=True):
    """What a plan says of its tiles. rows, vectors: of a register tile, and strip_vectors: in
    flight in strips of columns (0: the target's). unroll: steps of a sum in one iteration. packs:
    operands are copied into panels. row_vectors: in flight along rows.
    """

    rows: int = 0
    vectors: int = 0
    unroll: int = 4
    packs: bool = True
    row_vectors: int = 4
    strip_vectors: int = 0


class Setting(Struct, frozen=True):
    """`names`, `record` and `unmet` grow while a kernel is mapped.

    record: choices and notes, in the order in which they were made.
    leaves_out: sizes that few calls have may be left to another kernel.
    whole: versions that few sizes need are there, and not left out. tells_all: choices say all
        that is proposed, also what is never reached. unmet: what options ask for in vain.
    tiling: that of the plan which is applied. lasting: buffers that others use, outside of the
        part of a kernel that is seen.
    """

    machine: Machine
    options: Options
    names: Names
    record: list[Choice | Note]
    leaves_out: bool = True
    whole: bool = False
    tells_all: bool = False
    unmet: list[str] = field(default_factory=list)
    tiling: Tiling = Tiling()
    lasting: frozenset[str] = frozenset()

    def of_nest(self, loop: str) -> Setting:
        """That of the nest of that outermost loop; what grows is shared."""
        asked = plan_asked(loop, self.options)
        return replace(self, options=self.options.replace(plan=asked)) if asked else self

    def with_tiling(self, **changes: int) -> Setting:
        """With other tiles."""
        return replace(self, tiling=replace(self.tiling, **changes))

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

    @property
    def rows(self) -> int:
        return self.tiling.rows or self.machine.tile.rows

    @property
    def strip_vectors(self) -> int:
        return self.tiling.strip_vectors or self.machine.strip_vectors

    @property
    def vectors(self) -> int:
        return self.tiling.vectors or self.machine.tile.vectors
