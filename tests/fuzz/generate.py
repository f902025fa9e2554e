# SPDX-License-Identifier: Apache-2.0
"""Seed -> a random program in the text language, valid by construction or nearly so.

Programs cover all statement forms, element types and operators; sizes and layouts are random too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from msgspec.structs import replace

from tcsym.index.expr import index, var
from tcsym.types import DType
from tests.fuzz import (
    far,
    given,
    lengths,
    loops,
    padded,
    ranges,
    scatter,
    statements,
    tables,
    updates,
)
from tests.fuzz.layers import layered_program
from tests.fuzz.model import (
    LAYOUTS,
    Case,
    Input,
    TensorModel,
    declaration,
    form_name,
    most_points,
    random_kind,
    random_layouts,
    random_sizes,
)
from tests.fuzz.writer import Writer

MOST_POINTS = 200_000
MOST_DRAWS = 100_000  # of sizes
SETS = 4  # of sizes; a call costs little beside the code for it
SIZES = ("N", "M", "K", "B")
DTYPES = [DType.FLOAT32] * 8 + [DType.FLOAT64] * 3 + list(DType)
INTEGERS = [DType.INT32, DType.INT32, DType.INT64, DType.UINT8, DType.UINT64, DType.INT16]
Form = Callable[[Writer], None]

FORMS: list[tuple[Form, int, int]] = [  # form, weight, least level
    (statements.pointwise, 6, 0),
    (statements.reduction, 8, 0),
    (statements.contraction, 6, 0),
    (statements.window, 4, 0),
    (statements.widened, 2, 0),
    (statements.halved, 2, 0),
    (statements.stencil, 3, 1),
    (statements.resampled, 3, 1),
    (statements.update, 5, 1),
    (statements.fixed, 1, 1),
    (statements.let, 2, 1),
    (statements.exists, 1, 1),
    (statements.free_size, 1, 1),
    (statements.flattened, 1, 1),
    (given.stepped, 4, 0),
    (given.resampled, 2, 1),
    (given.spread, 1, 1),
    (given.blocks, 2, 2),
    (given.loop, 2, 2),
    (given.call, 1, 2),
    (far.guarded, 2, 1),
    (far.window, 1, 1),
    (far.ranged, 1, 2),
    (far.short, 1, 2),
    (far.steps, 1, 2),
    (scatter.scattered, 3, 1),
    (scatter.inverted, 2, 1),
    (scatter.placed, 1, 1),
    (padded.gathered, 3, 1),
    (padded.scattered, 3, 1),
    (padded.steps, 2, 2),
    (ranges.dependent, 3, 2),
    (ranges.ragged, 3, 2),
    (lengths.combined, 4, 2),
    (loops.recurrence, 2, 2),
    (loops.coupled, 3, 2),
    (loops.carried, 2, 2),
    (loops.evolving, 3, 2),
    (loops.triangular, 2, 2),
    (loops.sweeps, 2, 2),
    (loops.elimination, 3, 2),
    (loops.call, 3, 2),
    (tables.filled, 2, 2),
    (tables.program, 2, 2),
    (tables.placed, 2, 2),
    (updates.call, 2, 2),
]


def random_program(rng: random.Random, level: int = 2) -> Case:
    """`level` 0: pointwise, reductions, windows; 1: guards, gathers, updates; 2: all;
    3: layers (`layers.layered_program`)."""
    if level == 3:
        return layered_program(rng)
    seed = rng.randrange(1 << 30)
    w = Writer(rng, level, sorted(rng.sample(SIZES, rng.randint(1, 3))))
    inputs = _inputs(w)
    forms = [f for f, _, needed in FORMS if needed <= level]
    weights = [weight for _, weight, needed in FORMS if needed <= level]
    made_of = []
    for _ in range(rng.choice([1, 1, 2, 3, 4])):
        (form,) = rng.choices(forms, weights)
        form(w)
        made_of.append(form_name(form))
    if not w.made:
        statements.pointwise(w)
    names = [*w.sizes, *w.free, *w.given]
    sizes = tuple(_sizes(w, names) for _ in range(SETS))
    outputs = tuple(_outputs(w))
    parts = tuple(w.helpers), inputs, outputs, tuple(w.items), sizes, (*w.free, *w.given), seed
    expected = tuple((t.name, t.shape, t.dtype) for t in w.made)
    case = Case(*parts, expected=expected, points=tuple(w.points), given=tuple(w.given))
    case = replace(case, forms=tuple(made_of), may_fail=w.may_fail)
    models = {t.name: t for t in w.made}
    case = updates.with_updates(case, models, rng) if w.chance(0.25) else case
    return _with_words(case, rng) if rng.random() < 0.1 else case


WORDS = (
    *("split", "order", "merge", "combine", "stage", "at", "once", "turned"),
    *("tile", "reg", "lane", "part", "row", "parts", "panel"),
)


def _with_words(case: Case, rng: random.Random) -> Case:
    """Indices that are called as what texts of plans are made of."""
    names = dict(zip("ijk", rng.sample(WORDS, 3)))

    def one(text: str) -> str:
        return re.sub(r"\b[ijk]\b", lambda x: names[x[0]], text)

    return replace(case, helpers=tuple(map(one, case.helpers)), items=tuple(map(one, case.items)))


def _sizes(w: Writer, names: list[str]) -> dict[str, int]:
    """Drawn again while a statement has too many points, as one of four loops over a long size."""
    for _ in range(MOST_DRAWS):
        sizes = random_sizes([n for n in names if n not in w.given], w.rng)
        sizes |= {n: w.rng.choice(given.VALUES) for n in w.given}
        sizes |= {n: far.value(w) for n in w.far}
        if most_points(w.points, sizes) <= MOST_POINTS:
            return sizes
    raise AssertionError(f"no sizes give all statements few points: {w.items}")


def _inputs(w: Writer) -> tuple[Input, ...]:
    """Random tensors; every size appears in one of them, so that none is free by accident."""
    shapes = [tuple(var(w.rng.choice(w.sizes)) for _ in range(w.rng.choice([0, 1, 1, 2, 2, 3])))]
    if w.chance(0.6):
        shapes.append(tuple(var(w.rng.choice(w.sizes)) for _ in range(w.rng.randint(1, 2))))
    if w.chance(0.15):
        shapes.append((var(w.rng.choice(w.sizes)), index(w.rng.randint(1, 4))))
    used = {v for shape in shapes for e in shape for v in e.variables()}
    shapes.append(tuple(var(s) for s in w.sizes if s not in used) or (var(w.sizes[0]),))
    specs = []
    for name, shape in zip("ACDE", shapes):
        tensor = TensorModel(name, w.rng.choice(DTYPES), shape)
        if tensor.dtype.is_integer:
            tensor = replace(tensor, magnitude=9.0)
        layout = w.rng.choice(LAYOUTS)
        specs.append(Input(tensor, random_kind(w.rng), layout, varies=True))
    if w.level > 0 and w.chance(0.35):
        n, extent = var(w.rng.choice(w.sizes)), var(w.rng.choice(w.sizes))
        pointer = TensorModel("P", w.rng.choice(INTEGERS), (n,), 33.0, extent)
        specs.append(Input(pointer, "stray" if w.chance(0.2) else "index", "plain"))
    if w.level > 0 and w.chance(0.35):
        specs.append(Input(padded.padded_input(w), "padded", "plain"))
    if w.level > 0 and w.chance(0.25):
        k = w.rng.randrange(len(shapes))
        specs[k] = replace(updates.as_parameter(specs[k].tensor, w.rng), values=specs[k].values)
        w.made = [specs[k].tensor]
    w.inputs = [s.tensor for s in specs]
    return random_layouts(w.rng, specs)


def _outputs(w: Writer) -> list[tuple[str, str]]:
    """The last tensor and some others; declared ones with their type and shape."""
    outputs = []
    given = {t.name for t in w.inputs}
    for t in w.made:
        if t.name in given:
            continue
        if t.name in w.declared or t is w.made[-1] or w.chance(0.4):
            is_declared = t.name in w.declared or w.chance(0.15)
            outputs.append((t.name, declaration(t) if is_declared else t.name))
    return outputs
