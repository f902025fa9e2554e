# SPDX-License-Identifier: Apache-2.0
"""Planted bugs in the passes: tiles, vectors, panels, parts, windows, storage."""

from __future__ import annotations

from tests.mutants.model import Mutant

MUTANTS = (
    # ---- first values of split reductions
    Mutant(
        "thread-parts-start-at-zero",
        "each thread's part of a reduction starts at 0 whatever the operator",
        "_split",
        "Store(own, at, identity(x.op, source.dtype), x.name)",
        'Store(own, at, identity("add", source.dtype), x.name)',
    ),
    Mutant(
        "lanes-start-at-zero",
        "the lanes of a reduction start at 0 whatever the operator",
        "_clear",
        "start = identity(x.update.op, x.buffer.dtype)",
        'start = identity("add", x.buffer.dtype)',
    ),
    Mutant(
        "row-parts-start-at-zero",
        "parts of the rows start at 0 whatever the operator",
        "rfactor_rows",
        "identity(x.op, kept.dtype)",
        'identity("add", kept.dtype)',
    ),
    # ---- parts
    Mutant(
        "last-part-dropped",
        "the last part of a split reduction is dropped if it is short",
        "_split",
        "count = ceildiv(n, size)",
        "count = maximum(minimum(n, 1), ceildiv(n - size + 1, size))",
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
        "tile_loop",
        "n - var(tile) * size\n",
        "n - var(tile) * size + 1\n",
    ),
    Mutant(
        "row-mask-one-more",
        "the last vector of a row has a lane too many",
        "_Parts.remainder",
        "left = n - whole * shape.lanes",
        "left = n - whole * shape.lanes + 1",
    ),
    Mutant(
        "overlapping-vector-one-early",
        "the last vector of a row, which overlaps, ends before the last element",
        "_Parts.overlapping",
        "n - width)",
        "n - width - 1)",
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
        "_is_full",
        "ge(least, 0)",
        "ge(least, -1)",
    ),
    Mutant(
        "clamped-row-beyond",
        "rows beyond the end repeat the one after the last",
        "clamp_rows",
        "minimum(var(x.variable), x.mask - 1)",
        "minimum(var(x.variable), x.mask)",
    ),
    Mutant(
        "masks-dropped-too-freely",
        "lanes beyond the end read memory that has no padding",
        "_is_safe",
        "return still and not any(v.checked) and v.unwritten is None",
        "return True",
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
