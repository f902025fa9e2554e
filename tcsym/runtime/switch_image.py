# SPDX-License-Identifier: Apache-2.0
"""Call plan -> what its switch is made of."""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.index.expr import Condition
from tcsym.runtime.formulas import Formulas, packed_words
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.runtime.plan import CallPlan, GivenSize
from tcsym.runtime.switch import SwitchImage


def switch_image(plan: CallPlan, contexts: Sequence[Condition] = ()) -> SwitchImage | None:
    """None if the sizes of a call cannot be read off its arguments natively, or all are known.

    contexts: of regions that may have functions of their own, but the last, over the plan's sizes.
    """
    if not HAS_ENTRIES:
        return None
    where: dict[int, tuple[int, int]] = {}
    ranks: dict[int, int] = {}
    for k, p in enumerate(plan.parameters):
        if isinstance(p, GivenSize):
            continue
        ranks[k] = p.rank
        for axis, slot in enumerate(p.slots):
            where.setdefault(slot, (k, axis))
    known = plan.initial[: len(plan.sizes)]
    slots = tuple([k for k, value in enumerate(known) if value is None])
    given = [slot for slot in slots if slot not in where]
    if not slots or any(slot not in plan.free_slots for slot in given):
        return None
    if len(plan.parameters) > native.MOST_ARRAYS or any((v or 0) >= 2**63 for v in known):
        return None
    read = [(k, ranks[k], axis, s) for s, (k, axis) in where.items() if s in slots]
    parameters = {p.slot: p.place for p in plan.given_sizes}
    formulas = Formulas(plan.sizes, [value or 0 for value in known])
    region = _region(formulas, contexts)
    words = [
        *(len(known), len(slots), len(read), len(given), len(formulas.values)),
        *(len(formulas.steps) // 5, region),
        *formulas.values,
        *slots,
        *[word for place in read for word in place],
        *[word for slot in given for word in (slot, parameters.get(slot, -1))],
        *formulas.steps,
    ]
    where |= {slot: (parameters.get(slot, -1), -1 - k) for k, slot in enumerate(given)}
    return SwitchImage(
        packed_words(words),
        known,
        tuple([where[slot] for slot in slots]),
        tuple([p.name for p in plan.parameters]),
        tuple([plan.sizes[slot] for slot in given]),
        len(contexts) + 1 if contexts else 0,
    )


def _region(formulas: Formulas, contexts: Sequence[Condition]) -> int:
    """Place of the number of the first region whose condition holds."""
    conditions = [formulas.condition(context) for context in contexts]
    found = formulas.number(len(contexts))
    for k, condition in reversed(list(enumerate(conditions))):
        found = formulas.choose(condition, formulas.number(k), found)
    return found
