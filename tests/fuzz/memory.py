# SPDX-License-Identifier: Apache-2.0
"""Mapped loops of a case, run one element at a time on memory that knows what was set.

Machine code that reads what nobody wrote, or a little beside a buffer, often gives the right
results: what lies there is an old copy, or ends in a lane that nobody keeps. Here both are errors,
and so are loops that may be tiled and run backwards. Loops run in any order they may, so that one
that is said to be parallel and is not gives another result. Half of the cases run without the lines
that are said not to run at their sizes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

from tcsym.compiler import Lowering, analyse
from tcsym.index.values import evaluate, holds
from tcsym.ir.compiled import Layout
from tcsym.ir.idle import idle_lines
from tcsym.ir.launched import chosen
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.ir.text import kernel_text, node_text
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
    rng = random.Random(seed)
    versions = {c.variable: rng.randrange(c.versions) for c in kernel.choices}
    if seed % 2:
        kernel, versions = without_idle(kernel, sizes), versions | chosen(kernel, sizes)
    given = {b.name: b for b in kernel.buffers if b.space == "argument"}
    arrays = {name: np.array(x, _wide(np.asarray(x)), order="C") for name, x in inputs.items()}
    outputs = [name for name in kernel.arguments if name not in inputs]
    for name in outputs:
        shape = tuple(evaluate(e, sizes) for e in given[name].shape)
        arrays[name] = np.full(shape, np.nan if given[name].dtype.is_float else 77, object)
    with np.errstate(all="ignore"):
        execute(kernel, sizes, arrays, unset=outputs, shuffle=seed, chosen=versions)
    return {name: x.astype(given[name].dtype.numpy) for name, x in arrays.items() if name in given}


def without_idle(kernel: Kernel, sizes: Sizes) -> Kernel:
    """Without the lines that `explain` closes at these sizes; all of it where it is no body for
    them."""
    if holds(kernel.left_out, sizes):
        return kernel
    n_lines = kernel_text(kernel).count("\n")
    idle = idle_lines(kernel, sizes, n_lines)
    first = n_lines - node_text(kernel.body).count("\n") - 1
    return replace(kernel, body=_kept(kernel.body, itertools.count(first), idle))


def _kept(n: Node, lines: Iterator[int], idle: Collection[int]) -> Node:
    """lines: the numbers of this node's, and of those behind it."""
    match n:
        case Loop(body=body):
            line = next(lines)
            body = _kept(body, lines, idle)
            return Block(()) if line in idle else replace(n, body=body)
        case Branch(_, then, orelse):
            line = next(lines)
            then = _kept(then, lines, idle)
            if orelse is not None:
                next(lines)
                orelse = _kept(orelse, lines, idle)
            return Block(()) if line in idle else replace(n, then=then, orelse=orelse)
        case Block(body):
            return Block(tuple([_kept(x, lines, idle) for x in body]))
        case Allocate(buffers, body):
            for _ in buffers:
                next(lines)
            return Allocate(buffers, _kept(body, lines, idle))
        case _:
            return Block(()) if next(lines) in idle else n


def _wide(x: np.ndarray[Any, Any]) -> Any:
    return x.dtype if x.dtype.kind in "biu" else np.float64
