# SPDX-License-Identifier: Apache-2.0
"""Rows, then sums of columns over these rows -> parts of the rows, each with its sums (fusion).

The gradient of a normalised row needs the row, and so do the gradients of gain and bias, which are
sums over all rows. One after the other, both read all of it from memory. Here the sums are split
into parts (rfactor), and a part adds up its rows right after these were computed, from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, all_of, ge, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, Verify, block
from tcsym.schedule.analysis.access import Access, accesses
from tcsym.schedule.analysis.loops import (
    children,
    find_loop,
    loops_around,
    loops_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import replace_private
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.combine.rfactor_rows import part_of, rfactor_rows
from tcsym.schedule.order_plans import SumsBesideRows
from tcsym.schedule.version.versioning import duplicate

ROWS = 32  # of a part: what it reads of them is in the second cache; its sums are few beside that
LEAST_PARTS = 32  # threads that have one each
LEAST_STRIPS = 1  # of columns, which a part's sums run along
FAR_CACHES = 1  # second caches that what both read fills; what is smaller is still in one


def fuse_row_sums(kernel: Kernel, setting: Setting) -> Kernel:
    """Every such pair fused, where what both read does not stay in the second cache by itself, rows
    are many and columns fill vectors.

    Contract: privatised temporaries. The result depends on sizes, not on threads.
    """
    for rows, columns in list(_pairs(kernel.body)):
        kernel = _fused(kernel, rows, columns, setting)
    return kernel


def _pairs(node: Node) -> Iterator[tuple[Loop, Loop]]:
    match node:
        case Block(body):
            for x, y in pairwise(body):
                if isinstance(x, Loop) and isinstance(y, Loop):
                    yield x, y
            for x in body:
                yield from _pairs(x)
        case Branch(_, a, b):
            yield from _pairs(a)
            if b is not None:
                yield from _pairs(b)


def _fused(kernel: Kernel, rows: Loop, columns: Loop, setting: Setting) -> Kernel:
    shared = _shared_bytes(kernel, rows, columns)
    if shared is None:
        return kernel
    made, apart, _ = duplicate(kernel, block(rows, columns), setting.names)
    split = rfactor_rows(made, columns.variable, columns.variable, setting.names, ROWS)
    if split is None:
        return kernel
    made = split.kernel
    (parts,) = loops_around(made.body, split.columns)
    rest = find_loop(made.body, columns.variable)
    both = block(part_of(rows, var(parts.variable), ROWS), parts.body)
    fused = replace(parts, body=both, order="sequential", independent=True)
    strip = setting.lanes(made, columns) * setting.machine.strip_vectors
    far = ge(shared, FAR_CACHES * setting.machine.level("l2").bytes)
    many = ge(extent(rows), LEAST_PARTS * ROWS), ge(extent(columns), LEAST_STRIPS * strip)
    when = all_of((far, *many))
    body = made.body
    for x in (parts, rest):
        body = replace_loop(body, x.variable, lambda _: Block(()))
    whole = Branch(when, block(fused, rest), apart)
    body = replace_loop(body, rows.variable, lambda _: whole)
    plan = SumsBesideRows(rows.variable, columns.variable)
    setting.record.append(Choice(rows.variable, (Taken(when, plan),)))
    own = {rows.variable: (rows.variable, parts.variable)}  # a row's is its part's, too
    return replace_private(replace(made, body=body), own)


def _shared_bytes(kernel: Kernel, rows: Loop, columns: Loop) -> Index | None:
    """Of the tensors whose rows both read; None if there are none, or the sums of some rows cannot
    follow those rows."""
    sums = [x for x in children(columns.body) if isinstance(x, Loop)]
    if (rows.order, columns.order, len(sums)) != ("parallel", "parallel", 1):
        return None
    (down,) = sums
    if not _is_plain(rows) or not _is_plain(columns) or down.order != "reduction":
        return None
    if (rows.lower, down.lower) != (ZERO, ZERO) or rows.upper != down.upper:
        return None
    done, summed = tuple(accesses(rows)), tuple(accesses(columns))
    if {a.buffer for a in summed if a.written} & {a.buffer for a in done}:
        return None
    found = dict[str, Index]()
    for name in dict.fromkeys(a.buffer for a in summed):
        b, own = kernel.buffer(name), [a for a in done if a.buffer == name]
        follows = _axis([a for a in summed if a.buffer == name], down.variable)
        are_same_rows = follows is not None and _axis(own, rows.variable) == follows
        if any(a.written for a in own) and not are_same_rows:
            return None
        if own and are_same_rows and len(b.shape) > 1:
            found[name] = b.dtype.bytes * product_of(b.shape)
    return sum(found.values(), ZERO) if found else None


def _is_plain(nest: Loop) -> bool:
    """No statement has more than a loop within the nest's; none asks something at run time."""
    inside = loops_in(nest)[1:]
    flat = all(not loops_in(x.body) for x in inside)
    asks = any(isinstance(x, Verify) for x, _ in statements_in(nest))
    checked = any(any(a.checked) for a in accesses(nest))
    finds = any(x.at is not None or x.value is not None for x in inside)
    return flat and not (asks or checked or finds)


def _axis(found: list[Access], variable: str) -> int | None:
    """The dimension in which all accesses are at the loop's variable itself."""
    for k in range(min((len(a.subscripts) for a in found), default=0)):
        if all(a.subscripts[k] == var(variable) for a in found):
            return k
    return None
