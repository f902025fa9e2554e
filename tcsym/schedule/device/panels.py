# SPDX-License-Identifier: Apache-2.0
"""Terms of sums -> the operands that a block stages in shared memory, and how they are copied.

An operand moves with the sum and with one side, rows or columns, so that all of the other side use
it again. Its panel lies as it lies in memory, so that neighbours are copied together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from tcsym.frontend.program import (
    Binary,
    Cast,
    Const,
    Expr,
    Read,
    Unary,
    dtype_of,
    rewritten,
)
from tcsym.frontend.program import children as children_of
from tcsym.index.expr import ONE, ZERO, Condition, Index, all_of, eq, mod, var
from tcsym.ir.bounds import extent
from tcsym.ir.device import COPIED_BYTES
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads
from tcsym.schedule.analysis.access import Subscripts, stride, subscript_variables, value_variables
from tcsym.schedule.analysis.casts import under_casts
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.device.nest import Nest
from tcsym.trees import leaves
from tcsym.types import DType

MOST_COPIED = max(COPIED_BYTES)


class Roles(Struct, frozen=True):
    """Loops that have a part in a tile: of rows, of columns, and of the sum's steps."""

    rows: Loop
    columns: Loop
    sum: Loop

    def loop(self, variable: str) -> Loop:
        return next(x for x in (self.rows, self.columns, self.sum) if x.variable == variable)


class Contraction(Struct, frozen=True):
    """A nest whose points have one sum of products: what is `before` and `behind` it at a point,
    the loops `around` its terms, and the operands of these."""

    before: Node
    around: tuple[Loop, ...]
    behind: Node
    roles: Roles
    terms: tuple[Update, ...]
    panels: tuple[Panel, ...]

    @property
    def others(self) -> list[Loop]:
        """Loops of the sum that run around its panels."""
        return [x for x in self.around if x is not self.roles.sum]

    @property
    def is_zero_beyond(self) -> bool:
        """Zeros in place of all operands add nothing."""
        return all(t.op == "add" and is_zero_beyond(t.value, self.roles) for t in self.terms)


class Panel(Struct, frozen=True):
    """`value` at all of one side and of some steps. across: neighbours in memory are steps."""

    value: Expr
    side: str
    across: bool

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)


def contraction(nest: Nest, rows: str, columns: str, total: str) -> Contraction:
    """Of a nest of that kind, by the loops that have a part in its tiles."""
    body = children(nest.body)
    at = next(k for k, x in enumerate(body) if isinstance(x, Loop))
    around = chain_of(body[at])
    by = {x.variable: x for x in (*nest.chain, *around)}
    roles = Roles(by[rows], by[columns], by[total])
    terms = tuple(x for x in children(around[-1].body) if isinstance(x, Update))
    before, behind = block(*body[:at]), block(*body[at + 1 :])
    return Contraction(before, around, behind, roles, terms, panels_of(nest.kernel, terms, roles))


def panels_of(kernel: Kernel, terms: Sequence[Update], roles: Roles) -> tuple[Panel, ...]:
    """Of all terms, each once."""
    found: dict[Expr, Panel] = {}

    def note(v: Expr, side: str) -> Expr:
        across = any(_lies_along(kernel, r, roles.sum.variable) for r in loads(v))
        found[v] = Panel(v, side, across)
        return v

    for t in terms:
        replaced(t.value, roles, note)
    return tuple(found.values())


def replaced(v: Value, roles: Roles, of: Callable[[Expr, str], Expr]) -> Expr:
    """The value with other ones for its operands, given those and the sides that they move with."""
    assert isinstance(v, Expr)

    def side_of(x: Expr) -> str | None:
        inner = under_casts(x)
        return _side(x, roles) if x is inner or not isinstance(inner, Read) else None

    def below(x: Expr) -> tuple[Expr, ...]:
        inside = isinstance(x, Binary | Cast | Unary) and side_of(x) is None
        return children_of(x) if inside else ()

    def change(x: Expr, before: Expr) -> Expr:
        side = None if below(before) else side_of(before)
        return x if side is None else of(before, side)

    return rewritten(v, change, below=below)


def _side(v: Expr, roles: Roles) -> str | None:
    used = value_variables(v)
    sides = [x.variable for x in (roles.rows, roles.columns) if x.variable in used]
    return sides[0] if len(sides) == 1 and loads(v) and roles.sum.variable in used else None


def is_zero_beyond(v: Value, roles: Roles) -> bool:
    """Zeros in place of all operands make the value zero: it is a product of them alone."""
    assert isinstance(v, Expr)

    def below(x: Expr) -> tuple[Expr, ...]:
        is_factor = _side(x, roles) is not None
        match x:
            case Binary("mul") | Cast() | Unary("neg") if not is_factor:
                return children_of(x)
        return ()

    return all(_side(x, roles) is not None for x in leaves(v, below))


def unstaged(v: Value, roles: Roles) -> bool:
    """The value loads what no panel holds."""
    assert isinstance(v, Expr)
    rest = replaced(v, roles, lambda x, side: Const(0, dtype_of(x)))
    return bool(loads(rest))


def matrix_factors(
    terms: Sequence[Update], roles: Roles, of: Collection[DType]
) -> tuple[Read, Read] | None:
    """Of rows and of columns, if what is summed is one product of two of those types."""
    if len(terms) != 1 or terms[0].op != "add":
        return None
    v = terms[0].value
    v = under_casts(v) if isinstance(v, Expr) else v
    if not isinstance(v, Binary) or v.op != "mul" or v.exact:
        return None
    sides: dict[str, Read] = {}
    for x in map(under_casts, (v.left, v.right)):
        side = _side(x, roles) if isinstance(x, Read) else None
        if side is None or not isinstance(x, Read):
            return None
        sides[side] = x
    types = {x.dtype for x in sides.values()}
    if len(sides) != 2 or len(types) != 1 or not types <= {*of}:
        return None
    return sides[roles.rows.variable], sides[roles.columns.variable]


# ---- copies


def copied_elements(kernel: Kernel, panel: Panel, roles: Roles, most: int) -> int:
    """How many elements a copy of at most so many bytes moves; 0: threads load and store them."""
    v = panel.value
    if not isinstance(v, Read):
        return 0
    source = kernel.buffer(v.tensor)
    along = roles.sum.variable if panel.across else panel.side
    if source.space not in ("argument", "arena") or not source.shape or source.dtype is not v.dtype:
        return 0
    if source.element_strides()[-1] != ONE:
        return 0
    whole = most // v.dtype.bytes
    is_wide = most == MOST_COPIED  # for fewer bytes none may be whole
    if is_wide and _rows_apart(source, v.subscripts, roles.loop(along), whole) is not None:
        return whole
    return 1 if v.dtype.bytes in COPIED_BYTES else 0


def aligned(kernel: Kernel, panels: Sequence[Panel], roles: Roles) -> Condition | None:
    """When copies move MOST_COPIED bytes; None: never. It asks for phases of arguments."""
    found: list[Condition] = []
    for p in panels:
        n = copied_elements(kernel, p, roles, MOST_COPIED)
        if n <= 1:
            continue
        assert isinstance(p.value, Read)
        along = roles.loop(roles.sum.variable if p.across else p.side)
        apart = at_multiples(kernel.buffer(p.value.tensor), p.value.subscripts, along, n)
        assert apart is not None
        found += (*apart, eq(mod(extent(along), n), 0))
    return all_of(found) if found else None


def stored_along(kernel: Kernel, stores: Sequence[Store], roles: Roles) -> Condition:
    """When neighbours along columns that are stored lie at multiples of MOST_COPIED bytes."""
    found: list[Condition] = []
    for x in stores:
        b = kernel.buffer(x.buffer)
        if b.space == "argument":
            n = MOST_COPIED // b.dtype.bytes
            found += at_multiples(b, x.subscripts, roles.columns, n) or ()
    return all_of(found)


def phase_of(buffer: Buffer) -> str:
    """The variable of its address."""
    return f"{buffer.name}.phase"


def at_multiples(
    source: Buffer, subscripts: Subscripts, along: Loop, n: int
) -> list[Condition] | None:
    """When `n` neighbours lie at multiples of n elements; None: never. It asks for a phase."""
    apart = _rows_apart(source, subscripts, along, n)
    if apart is None:
        return None
    first = [var(phase_of(source))] if source.space == "argument" else []
    return [eq(mod(e, n), 0) for e in (*first, *apart)]


def _rows_apart(
    source: Buffer, subscripts: Subscripts, along: Loop, n: int
) -> tuple[Index, ...] | None:
    """Distances that must be multiples of n for `n` neighbours to lie at such; None: none help."""
    *rows, last = subscripts
    if not isinstance(last, Index) or not along.lower.is_multiple(n):
        return None
    rest = (last - var(along.variable)).as_int()
    moves = any(along.variable in subscript_variables((s,)) for s in rows)
    if rest is None or rest % n or moves:
        return None
    if source.strides is None:
        return source.shape[-1:] if rows else ()
    return tuple(s for s in source.strides[:-1] if s != ZERO)


def _lies_along(kernel: Kernel, r: Read, v: str) -> bool:
    return stride(kernel.buffer(r.tensor), r.subscripts, v) == ONE
