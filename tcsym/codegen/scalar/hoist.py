# SPDX-License-Identifier: Apache-2.0
"""Which values can be computed in front of a loop instead of in each iteration.

A value may move out of loops that change none of its variables and write none of its buffers. A
load from memory moves only where every iteration makes it: out of the innermost loop, and farther
if that has an iteration whenever it is reached (weights of a window, of which all rows are fed).
"""

from __future__ import annotations

from typing import assert_never

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import names_depth
from tcsym.codegen.scalar.reads import may_be_idle
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index.expr import Index, condition_variables
from tcsym.ir.loops import Holds, HorizontalReduce, Shuffle, Value
from tcsym.ir.traverse import value_children

FIXED = 1 << 30  # the depth of what must stay
# Functions that `library.or_library` has a part in; the others have no branches.
_BRANCHING = frozenset({"cos", "fmod", "j0", "j1", "remainder", "sin", "tan", "y0", "y1"})


def hoist_level(context: Context, v: Value) -> int:
    """The number of outer loops `v` must stay inside, or FIXED."""
    loops = context.function.loops
    if not loops or isinstance(v, Const | IndexValue | HorizontalReduce | Shuffle):
        return FIXED
    if isinstance(v, Read) and context.buffers[v.tensor].space == "register":
        return FIXED
    depth = _depth(context, v)
    return depth if depth < len(loops) else FIXED


def _depth(context: Context, v: Value) -> int:
    """As hoist_level, computed once for a value and a loop."""
    f = context.function
    key = (id(v), f.loops[-1].number, f.certain, context.mask)
    known = context.depths.get(key)
    if known is None:
        known = context.depths[key] = (_depth_of(context, v), v)
    return known[0]


def _depth_of(context: Context, v: Value) -> int:
    match v:
        case Const():
            return 0
        case IndexValue(i, _):
            return names_depth(context, i.variables())
        case Holds(c):
            return names_depth(context, condition_variables(c))
        case Read():
            return _read_depth(context, v)
        case HorizontalReduce() | Shuffle():
            return FIXED
        case Binary():
            return _spine_depth(context, v)
        case Cast() | Unary() | Compare() | Select() | Call():
            if _needs_blocks(context, v) or (isinstance(v, Cast) and v.exact):
                return FIXED
            return max(_depth(context, x) for x in value_children(v))
        case _:
            assert_never(v)


def _spine_depth(context: Context, v: Binary) -> int:
    """Left-nested operators in a loop, as they are emitted."""
    f = context.function
    spine = [v]
    while isinstance(spine[-1].left, Binary):
        spine.append(spine[-1].left)
    depth = _depth(context, spine[-1].left)
    for node in reversed(spine):
        stops = node.op in ("and", "or") and context.holds_inside(_loads_or_fails, node.right)
        fixed = node.exact or stops or (node.op == "mod" and node.dtype.is_float)
        depth = FIXED if fixed else max(depth, _depth(context, node.right))
        context.depths[(id(node), f.loops[-1].number, f.certain, context.mask)] = (depth, node)
    return depth


def _loads_or_fails(context: Context, v: Value) -> bool:
    """What `&&` and `||` may have to branch around."""
    return isinstance(v, Read) or getattr(v, "exact", False)


def _is_read(context: Context, v: Value) -> bool:
    return isinstance(v, Read)


def _needs_blocks(context: Context, v: Value) -> bool:
    """True if the code of `v`, no operator, may have branches, which cannot move."""
    match v:
        case Select():
            return not v.eager and context.holds_inside(_is_read, v)
        case Call(function, _):
            return function in _BRANCHING
        case _:
            return False


def _read_depth(context: Context, r: Read) -> int:
    f, buffer = context.function, context.buffers[r.tensor]
    if r.unwritten is not None or any(r.checked):
        return FIXED
    names: set[str] = set()
    for s in r.subscripts:
        if not isinstance(s, Index):
            return FIXED
        names |= s.variables()
    writing = [i + 1 for i, loop in enumerate(f.loops) if r.tensor in loop.stored]
    depth = max(names_depth(context, names), *writing, 0)
    if buffer.space == "register":
        return depth
    if may_be_idle(context, buffer, frozenset(names)):
        return FIXED
    if context.lanes is not None and context.lane_variable in names and not buffer.padded:
        depth = max(depth, names_depth(context, context.lanes.ragged))  # its mask is made there
    return max(depth, f.certain)
