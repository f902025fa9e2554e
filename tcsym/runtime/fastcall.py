"""Compiled kernel -> the call entry that Python calls at the cost of a C extension's.

There is none where the fast way cannot be taken safely: numpy's or CPython's objects do not look as
expected (probed once at run time), or some size does not follow from dense arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.compiled import Compiled, Layout
from tcsym.runtime.assemble import cached_object
from tcsym.runtime.entering import EntryImage, Library
from tcsym.runtime.fastcall_entry import Entry, can_be_entered
from tcsym.runtime.fastcall_ir import MOST_PRIVATE, MOST_SHARED, entry_ir
from tcsym.runtime.numpy_facts import arrays_are_as_expected
from tcsym.runtime.plan import CallPlan


def entry_image(
    plan: CallPlan,
    compiled: Compiled,
    pointers: tuple[int, ...],
    slots: Sequence[int | tuple[int, int]],
    layouts: tuple[Layout, ...],
    exact: bool = True,
    library: Library = "numpy",
) -> EntryImage | None:
    """What `entering.load_entry` loads, for arrays of these layouts; None where it is not safe.

    `pointers`, `slots` and `layouts` are those of a variant (`variants.Variant`). Unless `exact`,
    arrays of stricter layouts are served as well.
    """
    if not can_be_entered(plan, library) or not arrays_are_as_expected():
        return None
    if library == "torch" and not _torch_serves(plan):
        return None
    counts = compiled.shared_bytes, compiled.private_bytes
    if counts[0].constant > MOST_SHARED or counts[1].constant > MOST_PRIVATE:
        return None
    entry = Entry(plan, layouts, pointers, tuple(slots), *counts, exact, library)
    return EntryImage(
        name=plan.program.name,
        library=library,
        code=cached_object(entry_ir(entry), f"call entry of {plan.program.name}"),
        places=entry.table,
        inputs=tuple([(p.name, p.dtype.value) for p in plan.inputs]),
        outputs=tuple([(o.name, o.dtype.value) for o in plan.outputs]),
        sizes={slot: plan.sizes[slot] for slot in entry.free_slots},
        numbers={slot: plan.initial[slot] or 0 for slot in entry.numbers},
        scratch=(max(0, counts[0].constant), max(0, counts[1].constant)),
    )


def _torch_serves(plan: CallPlan) -> bool:
    from tcsym.runtime.torch_facts import torch_facts

    facts = torch_facts()
    if facts is None:
        return False
    return facts.types.keys() >= {p.dtype for p in plan.inputs} | {o.dtype for o in plan.outputs}


def all_dense(plan: CallPlan) -> tuple[Layout, ...]:
    dense: Layout = "dense"
    return (dense,) * (len(plan.inputs) + len(plan.outputs))
