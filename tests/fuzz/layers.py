# SPDX-License-Identifier: Apache-2.0
"""Seed -> a program shaped like the layers of a network, at sizes around tiles and vectors.

The general generator seldom writes convolutions, contractions of many indices, norms or
concatenations; these are what the mapping has schedules for. Sizes are drawn for each dimension
from what matters to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from tests.fuzz import (
    layer_first,
    layer_forms,
    layer_moves,
    layer_places,
    layer_rare,
    layer_rules,
    layer_strided,
    layer_sums,
)
from tests.fuzz.draft import Draft
from tests.fuzz.model import Case, form_name

FORMS: list[tuple[Callable[[Draft], None], int]] = [
    (layer_forms.convolution, 8),
    (layer_forms.pooling, 4),
    (layer_strided.transposed_convolution, 3),
    (layer_forms.contraction, 7),
    (layer_forms.normalisation, 5),
    (layer_forms.attention, 2),
    (layer_moves.permutation, 3),
    (layer_moves.concatenation, 3),
    (layer_moves.padding, 2),
    (layer_moves.rows_reduced, 3),
    (layer_moves.recurrence, 2),
    (layer_moves.scan, 5),
    (layer_moves.stencil, 2),
    (layer_sums.guarded_sum, 4),
    (layer_sums.alike, 3),
    (layer_sums.state, 2),
    (layer_sums.rolled, 2),
    (layer_rules.odd_floats, 12),
    (layer_rules.odd_integers, 8),
    (layer_rules.extremes, 7),
    (layer_rules.halves, 4),
    (layer_rules.gather, 5),
    (layer_rules.other_ranges, 5),
    (layer_places.places, 4),
    (layer_first.computed_factors, 6),
    (layer_first.routed, 3),
    (layer_rare.bordered_window, 3),
    (layer_rare.products_between, 3),
    (layer_rare.first_step, 3),
    (layer_rare.crops, 4),
    (layer_rare.first_and_last, 5),
    (layer_rare.from_there_on, 3),
    (layer_rare.powers, 2),
    (layer_rare.there_and_back, 3),
    (layer_rare.ranges_of_terms, 2),
]
MOST_POINTS = 150_000


def layered_program(rng: random.Random) -> Case:
    """One layer with its epilogue, sometimes two beside or behind each other."""
    d = Draft(rng)
    made_of = []
    forms, weights = zip(*FORMS, strict=True)
    for _ in range(rng.choice([1] * 7 + [2])):
        (form,) = rng.choices(forms, weights)
        form(d)
        made_of.append(form_name(form))
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            layer_moves.epilogue(d)
    return replace(d.case(MOST_POINTS), forms=tuple(made_of))
