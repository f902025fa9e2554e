# SPDX-License-Identifier: Apache-2.0
"""Planted bugs in the passes: tiles, vectors, panels, parts, windows, storage."""

from __future__ import annotations

from tests.mutants.model import Mutant

MUTANTS = (
    # ---- first values of split reductions
    Mutant(
        "thread-parts-start-at-zero",
        "each thread's part of a reduction starts at 0 whatever the operator",
        "_iterations",
        "start.append(Store(part, (), identity(u.op, b.dtype), part))",
        'start.append(Store(part, (), identity("add", b.dtype), part))',
    ),
    Mutant(
        "lanes-start-at-zero",
        "the lanes of a reduction start at 0 whatever the operator",
        "_points",
        "Store(name, at, identity(u.op, b.dtype), name)",
        'Store(name, at, identity("add", b.dtype), name)',
    ),
    Mutant(
        "window-parts-start-at-zero",
        "sums that windows share start at 0 whatever the operator",
        "_places",
        "identity(u.op, b.dtype)",
        'identity("add", b.dtype)',
    ),
    # ---- parts
    Mutant(
        "last-part-dropped",
        "the last part of a loop is dropped if it is short",
        "_counted",
        "total = ceildiv(inner.upper, each)",
        "total = maximum(minimum(inner.upper, 1), floordiv(inner.upper, each))",
    ),
    Mutant(
        "last-row-of-part-dropped",
        "of loops that became one, a part leaves out the row that it ends in",
        "_Collapse._run",
        "floordiv(end - 1, n) + 1",
        "floordiv(end, n)",
    ),
    # ---- ragged ends
    Mutant(
        "tile-mask-one-more",
        "a ragged tile has a point too many",
        "split",
        "mask = None if whole or inside > 1 else left",
        "mask = None if whole or inside > 1 else left + 1",
    ),
    Mutant(
        "last-vector-unmasked",
        "the last vector of a row, which is not full, has no mask",
        "_single",
        "whole = minimum(node.upper, floordiv(left, lanes))",
        "whole = minimum(node.upper, ceildiv(left, lanes))",
    ),
    Mutant(
        "overlapping-vector-one-early",
        "the last vector of a row, which overlaps, ends before the last element",
        "Overlap._back",
        "minimum(start, start + left - x.upper)",
        "minimum(start, start + left - x.upper - 1)",
    ),
    Mutant(
        "overlapping-tile-without-room",
        "tiles overlap though there is no whole one",
        "Overlap.fits",
        "ge(substitute(n, first), x.upper)",
        "ge(substitute(n, first), 1)",
    ),
    Mutant(
        "full-version-one-short",
        "the version without masks serves tiles that lack a point",
        "_whole",
        "return ge(_least(x, copies), x.upper)",
        "return ge(_least(x, copies), x.upper - 1)",
    ),
    Mutant(
        "clamped-row-beyond",
        "rows beyond the end repeat the one after the last",
        "_clamped",
        "minimum(var(v), mask - 1)",
        "minimum(var(v), mask)",
    ),
    Mutant(
        "masks-dropped-too-freely",
        "lanes beyond the end read memory that has no padding",
        "_clamped",
        "v in variables_of(r.subscripts) for r in memory",
        "v in variables_of(r.subscripts) for r in memory[:0]",
    ),
    Mutant(
        "guard-split-one-early",
        "the part of a loop where a guard holds ends one early",
        "_bounds",
        "uppers.append(edge + 1)",
        "uppers.append(edge)",
    ),
    # ---- operands
    Mutant(
        "rows-with-gaps-merged",
        "loops over parts of rows become one, as if the rows had no gaps between them",
        "_dimension",
        "whole = b.shape[d + 1] == extent(inner)",
        "whole = True",
    ),
    Mutant(
        "strided-dimensions-merged",
        "dimensions in the caller's strides are merged",
        "_dimension",
        "if b.strides is not None:",
        "if b.strides is not None and not b.strides:",
    ),
    Mutant(
        "weights-are-finite",
        "products with weights that are infinite are left out where a guard is 0",
        "_with_version",
        "condition = all_of(eq(var(flag), 1) for flag in flags)",
        "condition = all_of(eq(var(flag), var(flag)) for flag in flags)",
    ),
    # ---- windows
    Mutant(
        "border-lacks-a-vector",
        "the copy of a padded operand lacks the border's last vector on the left",
        "_row",
        "ceildiv(last.first, copy.lanes)",
        "floordiv(last.first, copy.lanes)",
    ),
    Mutant(
        "residue-class-one-short",
        "the classes of a strided window leave out their last step",
        "_split",
        "ceildiv(extent(x) - remainder, n)",
        "ceildiv(extent(x) - remainder - 1, n)",
    ),
    # ---- storage
    Mutant(
        "contracted-row-too-short",
        "a temporary keeps one element too few of a dimension",
        "_hull",
        "maximum(*highs) - minimum(*lows) + 1",
        "maximum(*highs) - minimum(*lows)",
    ),
    Mutant(
        "state-one-step-short",
        "the state of a loop in order keeps one step fewer than are read",
        "_Steps.kept",
        "return max(self.ages[0]) + 1",
        "return max(1, *self.ages[0])",
    ),
    Mutant(
        "accumulator-not-loaded",
        "a sum that goes on from an old value starts with what the register held",
        "_Accumulation.promote",
        "block(_load(scalar, source, target), inner, _store(scalar, source, target))",
        "block(inner, _store(scalar, source, target))",
    ),
    Mutant(
        "scan-rows-depend",
        "rows of a scan change places with its steps though one reads another",
        "_are_independent",
        "x.variable, written, loops",
        "x.variable, set(), loops",
    ),
    Mutant(
        "thread-buffers-shared",
        "a temporary that is not private to a loop's iterations lies in each thread's own memory",
        "_Inside.__call__",
        "return replace(node, body=inner) if self.is_private(node) else None",
        "return replace(node, body=inner)",
    ),
)
