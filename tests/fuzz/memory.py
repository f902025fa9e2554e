# SPDX-License-Identifier: Apache-2.0
"""Mapped loops of a case, run one element at a time on memory that knows what was set.

Machine code that reads what nobody wrote, or a little beside a buffer, often gives the right
results: what lies there is an old copy, or ends in a lane that nobody keeps. Here both are errors,
and so are loops that may be tiled and run backwards. Loops run in any order they may, so that one
that is said to be parallel and is not gives another result.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

from tcsym.compiler import Lowering, analyse
from tcsym.index.values import evaluate
from tcsym.ir.compiled import Layout
from tcsym.ir.loops import Kernel
from tcsym.target.names import resolve_target
from tests.fuzz.model import Case, Sizes
from tests.fuzz.thresholds import TARGETS, random_options
from tests.schedule.execute import execute


def mapped(
    case: Case, rng: random.Random, bind: Literal["never", "before", "after"], sizes: Sizes
) -> Kernel:
    """The loops of `case` for a random target and random options, all arrays dense."""
    program = analyse(case.source)[case.name]
    dense: tuple[Layout, ...] = ("dense",) * (len(program.inputs) + len(program.outputs))
    target, options = resolve_target(rng.choice(TARGETS)), replace(random_options(rng), bind=bind)
    stages = Lowering(program, target, options, sizes, dense, (), {})
    with patch.dict("os.environ", {"TCSYM_VERIFY": "1"}):
        return stages.mapped(stages.scheduled()).kernel


def run(kernel: Kernel, inputs: Mapping[str, Any], sizes: Sizes, seed: int) -> dict[str, Any]:
    """Outputs, and what becomes of inputs. AssertionError: what `execute` finds in the loops."""
    given = {b.name: b for b in kernel.buffers if b.space == "argument"}
    arrays = {name: np.array(x, _wide(np.asarray(x)), order="C") for name, x in inputs.items()}
    outputs = [name for name in kernel.arguments if name not in inputs]
    for name in outputs:
        shape = tuple(evaluate(e, sizes) for e in given[name].shape)
        arrays[name] = np.full(shape, np.nan if given[name].dtype.is_float else 77, object)
    with np.errstate(all="ignore"):
        execute(kernel, sizes, arrays, unset=outputs, shuffle=seed)
    return {name: x.astype(given[name].dtype.numpy) for name, x in arrays.items() if name in given}


def _wide(x: np.ndarray[Any, Any]) -> Any:
    return x.dtype if x.dtype.kind in "biu" else np.float64
