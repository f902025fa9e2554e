# SPDX-License-Identifier: Apache-2.0
"""Planted bugs in how calls are served: versions, keys, layouts, arguments, results."""

from __future__ import annotations

from tests.mutants.model import Mutant

MUTANTS = (
    # ---- keys
    Mutant(
        "key-without-options",
        "code of other options is taken from the cache",
        "code_key",
        "program, target, options, sizes, layouts, context)",
        "program, target, sizes, layouts, context)",
    ),
    Mutant(
        "key-without-target",
        "code of another target is taken from the cache",
        "code_key",
        "program, target, options, sizes, layouts, context)",
        "program, options, sizes, layouts, context)",
    ),
    Mutant(
        "key-without-sizes",
        "code with other numbers in it is taken from the cache",
        "code_key",
        "program, target, options, sizes, layouts, context)",
        "program, target, options, layouts, context)",
    ),
    Mutant(
        "key-without-layouts",
        "code for other layouts is taken from the cache",
        "code_key",
        "program, target, options, sizes, layouts, context)",
        "program, target, options, sizes, context)",
    ),
    Mutant(
        "key-without-context",
        "code for another range of sizes is taken from the cache",
        "code_key",
        "program, target, options, sizes, layouts, context)",
        "program, target, options, sizes, layouts)",
    ),
    Mutant(
        "versions-share-numbers",
        "versions with other numbers in them share their code",
        "Making.variants",
        "key = (options, tuple(sorted(fixed.items())), known, plan.sizes, wide)",
        "key = (options, tuple(sorted(fixed)), known, plan.sizes, wide)",
    ),
    Mutant(
        "versions-share-ranges",
        "versions for other ranges of sizes share their code",
        "Making.variants",
        "key = (options, tuple(sorted(fixed.items())), known, plan.sizes, wide)",
        "key = (options, tuple(sorted(fixed.items())), plan.sizes, wide)",
    ),
    # ---- versions
    Mutant(
        "point-serves-all",
        "calls of all sizes enter a version for single ones",
        "Table.point",
        "return self.points.get(sizes if self.key is None else self.key(sizes))",
        "return next(iter(self.points.values()), None)",
    ),
    Mutant(
        "bucket-one-short",
        "the code of a bucket is made for one size less than it serves",
        "Buckets._version",
        "ranges.append(Known(plan.sizes[slot], below + 1, most, step))",
        "ranges.append(Known(plan.sizes[slot], below + 1, max(below + 1, most - 1), step))",
    ),
    Mutant(
        "entry-checks-no-numbers",
        "a native entry accepts sizes other than the numbers in its code",
        "_plan_of",
        "v if k in given else version.fixed.get(n, v)",
        "v",
    ),
    # ---- padding
    Mutant(
        "padding-holds-zeros",
        "padding holds 0 whatever it should hold",
        "_filled",
        "np.full(shape, value, view.dtype.numpy)",
        "np.full(shape, 0, view.dtype.numpy)",
    ),
    # ---- layouts
    Mutant(
        "reversed-rows-are-rows",
        "rows that run backwards are taken for rows",
        "_has_steps",
        "return view.strides[dimension] == _itemsize(view)",
        "return abs(view.strides[dimension]) == _itemsize(view)",
    ),
    Mutant(
        "strides-of-other-dimension",
        "code for transposed arrays takes the wrong dimension to be dense",
        "layout_strides",
        'strides[-1 if layout == "rows" else -2]',
        "strides[-1]",
    ),
    Mutant(
        "copies-not-written-back",
        "results of a call that ran on copies are not written back",
        "run_on_copies",
        "if passed[k] is not views[k]:",
        "if passed[k] is views[k]:",
    ),
    Mutant(
        "padded-updates-lost",
        "what a padded version updated is not copied back",
        "Padding.of",
        'if t.role != "input"',
        'if t.role == "output"',
    ),
    Mutant(
        "updates-may-overlap",
        "an array that is updated may be another argument, too",
        "require_updatable",
        "if q is not p}",
        "if q is p and not v.dense}",
    ),
    Mutant(
        "updates-seen-by-readers-before",
        "a step that updates a tensor runs before what reads it as it was",
        "_groups",
        "touching[name] += own",
        "touching[name] += own * (name in written)",
    ),
    # ---- arguments and results
    Mutant(
        "smaller-extents-accepted",
        "an array may be larger than the size that another one gave",
        "_bind_parameter",
        "elif values[slot] != extent:",
        "elif (values[slot] or 0) > extent:",
    ),
    Mutant(
        "size-error-of-other-kind",
        "a contradiction of sizes is reported as a wrong type",
        "_contradiction",
        'return plan.error("size", message, p.dimension_spans[axis])',
        'return plan.error("type", message, p.dimension_spans[axis])',
    ),
    Mutant(
        "overlapping-out-accepted",
        "an output may overlap a dense input",
        "overlap",
        "if a.dense and b.dense:\n        return True",
        "if a.dense and b.dense:\n        return False",
    ),
    Mutant(
        "unaligned-out-forgotten",
        "what was computed for an unaligned output is not copied into it",
        "Outputs.finished",
        "for to, source in self.pending:",
        "for to, source in self.pending[:0]:",
    ),
    Mutant(
        "extents-lose-constants",
        "extents of results lose what is added to them",
        "_Code.total",
        "[*parts, str(constant)] if constant or not parts else parts",
        "parts or [str(constant)]",
    ),
)
