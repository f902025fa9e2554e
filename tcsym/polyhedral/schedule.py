"""Program -> proved schedule and naive loop IR: the polyhedral middle on one page.

normalise -> scop -> dependences -> fuse -> prove -> lower. A strategy whose tree is not proved, or whose time
is up, gives way to the next simpler one; the last is the order of the text, which needs no proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import islpy as isl

from tcsym.compiled import Layout
from tcsym.frontend.program import Program
from tcsym.loop_ir import Kernel
from tcsym.options import Fusion, Options
from tcsym.polyhedral.contract_storage import private_loops
from tcsym.polyhedral.deadline import Deadline, TimeLimit, isl_within
from tcsym.polyhedral.dependence import Dependences, scop_dependences
from tcsym.polyhedral.fuse import fuse
from tcsym.polyhedral.lower import lower
from tcsym.polyhedral.normalise import normalise
from tcsym.polyhedral.prove import loop_orders, prove
from tcsym.polyhedral.relations import Relations
from tcsym.polyhedral.scop import Scop, program_to_scop
from tcsym.polyhedral.tree import Tree, with_orders
from tcsym.presburger import Presburger

_FUSIONS: tuple[Fusion, ...] = ("max", "preserve-coincident", "min")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What the later stages need (`kernel`) and what a person may want to see.

    `scop`, `dependences` and `tree` print as text. `notes`: fall-backs taken and why. `milliseconds`
    by step. `program` is the normalised one.
    """

    program: Program
    scop: Scop
    dependences: Dependences
    tree: Tree
    kernel: Kernel
    notes: tuple[str, ...]
    milliseconds: Mapping[str, float]


@dataclass(slots=True)
class _Log:
    notes: list[str] = field(default_factory=list)
    milliseconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - start) * 1e3
            self.milliseconds[name] = self.milliseconds.get(name, 0.0) + spent


def schedule_program(
    program: Program, options: Options, layouts: Mapping[str, Layout]
) -> Scheduled:
    """Schedule for all sizes; takes at most about `options.time_limit` seconds."""
    log = _Log()
    presburger = Presburger(program.sizes)
    deadline = Deadline.after(options.time_limit)
    with log.step("normalise"):
        program = _normalised(program, presburger, deadline)
    with log.step("scop"):
        scop = program_to_scop(program)
    relations = Relations(scop, presburger, deadline)
    dependences, tree, private = _proved_tree(scop, relations, options, log)
    with log.step("lower"):
        kernel = lower(tree, scop, program, layouts, private)
    return Scheduled(program, scop, dependences, tree, kernel, tuple(log.notes), log.milliseconds)


def _normalised(program: Program, presburger: Presburger, deadline: Deadline) -> Program:
    try:
        with isl_within(presburger.context, deadline):
            return normalise(program, presburger)
    except TimeLimit:
        return normalise(program, presburger)


Private = Mapping[str, frozenset[str]]


def _proved_tree(
    scop: Scop, relations: Relations, options: Options, log: _Log
) -> tuple[Dependences, Tree, Private]:
    """The tree of the first strategy that can be proved in time, with orders, and private storage."""
    dependences: Dependences | None = None
    try:
        with isl_within(relations.presburger.context, relations.deadline):
            with log.step("dependences"):
                dependences = scop_dependences(scop, relations)
            for fusion in _FUSIONS[_FUSIONS.index(options.fusion) :]:
                tried = _attempt(scop, dependences, fusion, log)
                if tried is not None:
                    return dependences, *tried
    except TimeLimit:
        log.notes.append(f"no proof within {options.time_limit:g} s: order of the text")
    except isl.Error:
        log.notes.append("isl failed: order of the text")
    known = dependences or Dependences((), relations)
    return known, fuse(scop, known, "min"), {}


def _attempt(
    scop: Scop, dependences: Dependences, fusion: Fusion, log: _Log
) -> tuple[Tree, Private] | None:
    with log.step("fuse"):
        tree = fuse(scop, dependences, fusion)
    with log.step("prove"):
        proof = prove(tree, scop, dependences)
    if not proof.is_legal:
        log.notes.append(f"fusion {fusion} not proved: {proof.violations[0]}")
        return None
    with log.step("storage"):
        private = private_loops(tree, scop, dependences.relations)
    with log.step("orders"):
        orders = loop_orders(tree, scop, dependences, proof, private)
    return with_orders(tree, orders), private
