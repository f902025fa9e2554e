# SPDX-License-Identifier: Apache-2.0
"""The ways in which a program is compiled, which of them a program is tried in, and their kernels.

A program is tried in a few ways, drawn by weight: many programs in some ways each find more than
few programs in all of them.
"""

from __future__ import annotations

import random
from math import gcd
from typing import Any, Literal

from tcsym.kernel.definition import define
from tcsym.options import Options
from tcsym.sizes.dims import Dim
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Symbolic
from tests.fuzz.calls import WithConstants
from tests.fuzz.model import Case, Sizes, has_far
from tests.fuzz.plans import options_of
from tests.fuzz.thresholds import TARGETS
from tests.fuzz.updates import in_place

# how often each is drawn. Loops in Python cost least, by drawn options and thresholds.
WEIGHTS: dict[str, float] = {
    "thresholds": 12,
    "memory": 12,
    "symbolic": 4,
    "options": 3,
    "threads": 2,
    "guarded": 2,
    "before": 1,
    "after": 2,
    "cpu:avx2": 2,
    "cpu:novector": 2,
    "cuda:twin": 1,
    "cuda:sm_90a": 0.5,
    "declared": 2,
    "specialize": 2,
    "bucket": 2,
    "pad": 1,
    "pad-max": 2,
    "auto": 1.5,
    "swaps": 0.5,
    "cached": 2.5,
    "session": 2,
    "constants": 2,
    "wrong": 1.5,
}
DRAWN_MODES = 4
FEW_POINTS = 10_000  # run one at a time
STRATEGIES: dict[str, Any] = {
    "specialize": Specialize(),
    "bucket": Bucket(),
    "pad": Pad(8),
    "pad-max": Pad("max"),
    "auto": Auto(hot=0.0),
    "swaps": Specialize(background=1.0, max_variants=2),
    "declared": Symbolic(),
}
DRAWN = ("options", "thresholds", "memory")  # what is compiled is drawn for a program
PER_SIZES, FEW_SIZES = ("before", "after", "specialize", "swaps", "pad", "auto", "wrong"), 2
BOUNDED = ("bucket", "pad-max", "declared")


def drawn_modes(case: Case) -> tuple[str, ...]:
    """The default: a few, by weight."""
    rng, left = random.Random(case.seed + 2), dict(WEIGHTS)
    if any(i.values == "stray" for i in case.inputs):  # they might stray into padding
        left |= {mode: 4 * left[mode] for mode in ("pad", "pad-max")}
    found = []
    for _ in range(DRAWN_MODES):
        (mode,) = rng.choices(list(left), list(left.values()))
        found.append(mode)
        del left[mode]
    return tuple(found)


def kernel(case: Case, mode: str, sizes: Sizes) -> Any:
    """The def of `case` compiled as `mode` says (sizes matter where they are substituted)."""
    options: dict[str, Any] = {"strategy": STRATEGIES.get(mode, "symbolic")}
    if mode in BOUNDED:
        options["sizes"] = declared(case)
    if mode == "bucket" and is_narrow(case):
        options["strategy"] = Bucket(edges=_edges(case))
    if mode in ("before", "after") and sizes and not is_fixed(case):
        options["options"] = Options(bind=dict.fromkeys(_substituted(case), mode))
    elif mode == "before" and sizes:
        options = {"sizes": dict(sizes), "options": Options(bind="before")}
    elif (mode == "after" or (mode == "wrong" and is_fixed(case))) and sizes:
        options = {"sizes": dict(sizes), "options": Options(bind="after")}
    elif mode == "options" or mode == "thresholds":
        rng, bind = random.Random(case.seed), drawn_binding(case)
        target = rng.choice(TARGETS)
        drawn = options_of(case, rng, target, bind, sizes if bind != "never" else {})
        options |= {"options": drawn, "target": target}
        options |= {"sizes": dict(sizes)} if bind != "never" and sizes else {}
    elif mode == "threads":  # short loops, too
        options["options"] = Options(min_work_per_thread=0)
    elif mode.startswith(("cpu", "cuda")):
        options["target"] = mode
    made = define(case.source, **options)[case.name]
    if mode == "session":
        made = made.plan().session()
    elif mode == "constants":
        rng, names = random.Random(case.seed), [i.tensor.name for i in case.inputs if not i.inout]
        made = WithConstants(
            made.plan(), rng.sample(names, rng.randint(min(1, len(names)), len(names)))
        )
    return in_place(made, case)


def drawn_binding(case: Case) -> Literal["never", "before", "after"]:
    """When the sizes of this program become numbers."""
    bindings: list[Literal["never", "before", "after"]] = ["never"] * 6 + ["before", "after"]
    return random.Random(case.seed + 1).choice(bindings)


def is_tried(case: Case, mode: str, sizes: Sizes) -> bool:
    """Where code is made for single sizes, a few are enough; loops run in Python if short."""
    if mode == "memory" and (has_far(sizes) or case.work(sizes) > FEW_POINTS):
        return False
    if mode in BOUNDED and dict(sizes) not in _served(case):
        return False
    is_bound = mode in DRAWN and drawn_binding(case) != "never"
    many = mode not in (*PER_SIZES, "memory") and not is_bound
    return many or sizes in case.sizes[:FEW_SIZES]


def kernel_key(case: Case, mode: str, sizes: Sizes) -> str:
    """Calls of the same key enter the same kernel."""
    if (mode in ("before", "after", "wrong") and is_fixed(case)) or (
        mode in DRAWN and drawn_binding(case) != "never"
    ):
        return f"{mode} {sizes}"
    if mode == "memory":  # loops cost little to make
        return f"{mode} {case.turn(sizes)}"
    return "symbolic" if mode in ("guarded", "wrong") else mode


def is_fixed(case: Case) -> bool:
    """Kernels with numbers for sizes, and those that wrong calls meet, are for one call's sizes."""
    return case.seed % 2 == 1


def _substituted(case: Case) -> list[str]:
    """Some of the sizes: a kernel has code for each of their values."""
    names = sorted(case.sizes[0])
    rng = random.Random(case.seed + 7)
    return rng.sample(names, rng.randint(1, len(names)))


def is_narrow(case: Case) -> bool:
    """What is declared serves few of the sizes: at their bounds much more is known."""
    return random.Random(case.seed + 6).random() < 0.5


def _served(case: Case) -> tuple[dict[str, int], ...]:
    return case.sizes[-FEW_SIZES:] if is_narrow(case) else case.sizes


def declared(case: Case) -> dict[str, Dim]:
    """The tightest ranges and multiples, so that calls lie at their bounds."""
    values = {n: [s[n] for s in _served(case)] for n in case.sizes[0]}
    return {n: Dim(min(v), max(v), max(1, gcd(*v))) for n, v in values.items()}


def _edges(case: Case) -> dict[str, tuple[int, ...]]:
    """Every size has a bucket of its own."""
    return {n: tuple(sorted({s[n] for s in _served(case)})) for n in case.sizes[0]}
