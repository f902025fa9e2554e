# SPDX-License-Identifier: Apache-2.0
"""Parameters that a call updates: outputs and inputs made so, calls that update, and how they run.

The tests take a kernel that updates arrays for one that gives them back (`in_place`): each call
updates memory of its own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from tcsym.index.expr import Index, var
from tcsym.types import DType
from tests.fuzz.model import LAYOUTS, Case, Input, TensorModel, random_kind
from tests.fuzz.writer import Writer
from tests.guarded import guarded

UPDATED = [x for x in LAYOUTS if x != "broadcast"]

HELPERS: tuple[tuple[str, str, int, tuple[int, ...]], ...] = (
    # name, text, rank of the tensor, ranks of tensors that are only read
    ("blend", "def blend(inout {t}(N) Y, {t}(N) X) -> () {{ Y(i) = X(N - 1 - i) }}", 1, (1,)),
    ("turned", "def turned(inout {t}(N) Y) -> (first) {{ first = Y(0)  Y(i) = Y(N-1-i) }}", 1, ()),
    ("lift", "def lift(inout {t}(N, M) Y) -> (top) {{\n  top(j) max=! Y(i, j)\n"
     "  drop(Y)\n}}\ndef drop(inout {t}(P, Q) Z) -> () {{ Z(p, q) min= Z(0, q) }}", 2, ()),
)  # fmt: skip


def call(w: Writer) -> None:
    """A def that updates a tensor of the program, perhaps through another one."""
    name, text, rank, read = w.rng.choice(HELPERS)
    fit = [t for t in w.made if len(t.shape) == rank and t.dtype is not DType.BOOL]
    if not fit:
        return
    t = w.rng.choice(fit)
    others = [x for x in [*w.inputs, *w.made] if x.shape == t.shape and x.dtype is t.dtype]
    others = [x for x in others if x.name != t.name]
    if read and not others:
        return
    given = [t.name, *(w.rng.choice(others).name for _ in read)]
    n = len(w.helpers)
    text = text.format(t=t.dtype).replace(f"def {name}(", f"def {name}_{n}(")
    w.helpers.append(text.replace("drop(", f"drop_{n}("))
    targets = ""
    if "-> ()" not in text.partition("{")[0]:
        targets = f"{w.fresh()} = "
        w.made.append(TensorModel(w.fresh(), t.dtype, t.shape[1:], t.magnitude))
    w.items.append(f"{targets}{name}_{n}({', '.join(given)})")


def updatable(shape: Sequence[Index]) -> bool:
    """It can be a parameter's."""
    return all(e.as_int() is not None or e == var(str(e)) for e in shape)


def as_parameter(t: TensorModel, rng: random.Random) -> Input:
    layout = rng.choice(UPDATED) if rng.random() < 0.4 else "plain"
    return Input(t, random_kind(rng), layout, varies=True, inout=True)


def with_updates(case: Case, models: Mapping[str, TensorModel], rng: random.Random) -> Case:
    """Some outputs become parameters; some of these go on from what they hold."""
    for name, _ in case.outputs:
        t = models.get(name)
        if t is None or not updatable(t.shape) or rng.random() > 0.3:
            continue
        outputs = tuple(o for o in case.outputs if o[0] != name)
        case = replace(case, outputs=outputs, inputs=(*case.inputs, as_parameter(t, rng)))
        if rng.random() < 0.5:
            items = tuple(_accumulating(item, name) for item in case.items)
            case = replace(case, items=items)
    return case


def _accumulating(item: str, name: str) -> str:
    head, op, rest = item.partition("=!")
    is_it = op and head.startswith((f"{name} ", f"{name}(")) and "=" not in head
    return f"{head}={rest}" if is_it else item


# ---- running


class InPlace:
    """A kernel, or its reference, called as one that gives back what it updates, behind results.

    What `out=` has for that is the memory that is updated.
    """

    def __init__(self, call: Any, case: Case) -> None:
        self.call, self.case = call, case

    def __call__(self, *, out: Any = None, **given: Any) -> Any:
        outputs, updated = [n for n, _ in self.case.outputs], self.case.updated
        targets = dict(zip((*outputs, *updated), out if isinstance(out, tuple) else (out,)))
        for name in updated:
            memory = targets.get(name)
            if memory is None:
                memory = guarded(given[name], "end")
            else:
                memory[...] = given[name]
            given[name] = memory
        if out is not None and outputs:
            given["out"] = tuple([targets[n] for n in outputs])
        results = self.call(**given)
        results = () if results is None else results
        results = results if isinstance(results, tuple) else (results,)
        every = (*results, *(given[n] for n in updated))
        return every if len(every) > 1 else every[0]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.call, name)
        return InPlace(found, self.case) if name == "reference" else found


def in_place(kernel: Any, case: Case) -> Any:
    return InPlace(kernel, case) if case.updated else kernel


def results_of(case: Case) -> list[str]:
    """Names of what a call gives, as `in_place` does."""
    return [*(name for name, _ in case.outputs), *case.updated]


def copies(inputs: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """Inputs, of which those that are updated may be."""
    return {n: np.array(x) if n in case.updated else x for n, x in inputs.items()}
