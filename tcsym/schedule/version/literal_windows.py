# SPDX-License-Identifier: Apache-2.0
"""Loops over windows of symbolic size -> a copy for windows of 3, behind a test of the sizes.

One compilation serves all sizes, but only a window of known size becomes straight code that loads
a row once for all that use it; most windows of programs are 3 wide. A window is a reduction loop
that slides: some subscript moves with it and with a parallel loop. Sizes are replaced in the copy;
what the arrays measure stays symbolic.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import FALSE, ZERO, Condition, Index, all_of, eq, index
from tcsym.index.values import condition_substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Update
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Band, reductions
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.sliding import slides_over
from tcsym.schedule.tile.unroll_window import is_long
from tcsym.schedule.version.versioning import duplicate

LITERAL = 3


class Windows(Struct, frozen=True):
    """Reduction loops of symbolic extent that slide over an operand; perhaps none."""

    loops: tuple[Loop, ...]

    @property
    def variables(self) -> frozenset[str]:
        return frozenset(x.variable for x in self.loops)

    @property
    def are_literal(self) -> Condition:
        """All of them are as long as the literal."""
        return all_of(eq(extent(x), LITERAL) for x in self.loops)

    def fixed_sizes(self) -> dict[str, Index]:
        """Sizes that `are_literal` decides, with their values."""
        values: dict[str, Index] = {}
        for x in self.loops:
            (atom, c), *others = x.upper.terms
            if isinstance(atom, str) and c == 1 and not others:
                values[atom] = index(LITERAL - x.upper.constant)
        return values


class LiteralCopy(Struct, frozen=True):
    """`copy` may run instead of a loop where the windows are literal. `new`: loops by old names."""

    kernel: Kernel
    copy: Node
    new: dict[str, str]

    def before(self, loop: str, condition: Condition) -> Kernel:
        """The kernel that runs the copy where `condition` holds, else the loop."""
        body = replace_loop(self.kernel.body, loop, lambda x: Branch(condition, self.copy, x))
        return replace(self.kernel, body=body)


def symbolic_windows(kernel: Kernel, band: Band, points: int) -> Windows:
    """The windows of the band, if each is straight code around `points` statements at the literal.

    None of them if one would stay a loop.
    """
    found: dict[str, Loop] = {}
    for x, own, n in _windows_of(band, points):
        symbolic = [y for y in own if extent(y).as_int() is None]
        if not symbolic:
            continue
        if n == 0 or is_long(x, n) or not all(_may_be_literal(kernel, y) for y in symbolic):
            return Windows(())
        found.update((y.variable, y) for y in symbolic)
    windows = Windows(tuple(found.values()))
    possible = in_context(kernel, windows.are_literal)
    possible = condition_substitute(possible, windows.fixed_sizes())
    return Windows(()) if possible == FALSE else windows


def are_known(band: Band, points: int | None) -> bool:
    """The band has windows, all of known size, and straight code around so many `points`, if any
    number of them is given."""
    found = _windows_of(band, points or 1)
    straight = points is None or not any(n == 0 or is_long(x, n) for x, _, n in found)
    known = all(extent(y).as_int() is not None for _, own, _ in found for y in own)
    return bool(found) and known and straight


def _windows_of(band: Band, points: int) -> list[tuple[Update, list[Loop], int]]:
    """Reductions over windows, the loops that slide, and the statements of their straight code
    where symbolic windows are literal; 0 statements: other loops inside are of no known size."""
    found = []
    for x, around in reductions(band.body):
        own = [y for y in around if _slides(x, y, band)]
        if own:
            n = points
            for y in around[around.index(own[0]) :]:
                known = extent(y).as_int()
                n *= known if known is not None else LITERAL if y in own else 0
            found.append((x, own, n))
    return found


def literal_copy(kernel: Kernel, loop: str, windows: Windows, names: Names) -> LiteralCopy:
    """The loop again with the `windows` inside it as long as the literal."""
    kernel, copy, new = duplicate(kernel, find_loop(kernel.body, loop), names)
    inside = frozenset(new[v] for v in windows.variables)

    def change(x: Node) -> Node:
        if isinstance(x, Loop) and x.variable in inside:
            return replace(x, upper=index(LITERAL))
        return x

    literal = substitute_node(map_node(copy, change), windows.fixed_sizes())
    return LiteralCopy(kernel, literal, new)


def _slides(x: Update, loop: Loop, band: Band) -> bool:
    return loop.order == "reduction" and any(slides_over(x, (loop,), v) for v in band.variables)


def _may_be_literal(kernel: Kernel, loop: Loop) -> bool:
    return loop.lower == ZERO and loop.upper.variables() <= frozenset(kernel.sizes)
