# SPDX-License-Identifier: Apache-2.0
"""Program -> proved schedule and naive loop IR: the polyhedral middle on one page.

gather form, hoist sums, pair operands -> normalise -> separate terms, share parts -> scop ->
dependences -> fuse -> prove -> lower. A strategy whose tree is not proved, or not within the
operations that it may take, gives way to the next simpler one; the last is the order of the text,
which needs no proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import islpy as isl
from msgspec import Struct, field

from tcsym.frontend.program import Program
from tcsym.index.effort import Effort, Exhausted
from tcsym.index.presburger import Presburger
from tcsym.ir.compiled import Layout
from tcsym.ir.loops import Kernel, Node
from tcsym.options import Fusion, Options, Scheduler
from tcsym.polyhedral.dependence import Dependences, scop_dependences
from tcsym.polyhedral.fuse import fuse
from tcsym.polyhedral.isl_schedule import Unsuitable, isl_schedule
from tcsym.polyhedral.lower import has_bounds, kernel_around, private_around_uses, tree_to_loops
from tcsym.polyhedral.pipelines import pipelines
from tcsym.polyhedral.private_loops import private_loops
from tcsym.polyhedral.prove import loop_orders, prove
from tcsym.polyhedral.relations import Relations
from tcsym.polyhedral.scop import Scop, program_to_scop
from tcsym.polyhedral.tree import Tree, with_orders, with_pipelines
from tcsym.rewrite.check_ranges import check_ranges
from tcsym.rewrite.gather_form import gather_form
from tcsym.rewrite.hoist_sums import hoist_sums
from tcsym.rewrite.normalise import normalise
from tcsym.rewrite.pair_operands import pair_operands
from tcsym.rewrite.separate_sums import separate_sums
from tcsym.rewrite.separate_terms import separate_terms
from tcsym.rewrite.share_maps import share_maps
from tcsym.rewrite.share_parts import share_parts
from tcsym.rewrite.share_sums import share_sums
from tcsym.rewrite.share_terms import share_terms
from tcsym.sizes.context import Context, context_condition

_FUSIONS: tuple[Fusion, ...] = ("max", "preserve-coincident", "min")


class Scheduled(Struct, frozen=True):
    """What the later stages need (`kernel`) and what a person may want to see.

    `scop`, `dependences` and `tree` print as text. `notes`: fall-backs taken and why.
    `milliseconds` by step. `program` is the normalised one.
    """

    program: Program
    scop: Scop
    dependences: Dependences
    tree: Tree
    kernel: Kernel
    notes: tuple[str, ...]
    milliseconds: Mapping[str, float]


class _Log(Struct):
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
    program: Program, options: Options, layouts: Mapping[str, Layout], context: Context = ()
) -> Scheduled:
    """Schedule for all sizes in `context`; each proof takes at most `options.max_operations`."""
    log = _Log()
    presburger = Presburger(program.sizes)
    effort = Effort(presburger.context, options.max_operations)
    with log.step("normalise"):
        program = share_maps(share_sums(hoist_sums(gather_form(check_ranges(program)))))
        program = pair_operands(separate_sums(program), context)
        program = separate_terms(_normalised(program, presburger, effort))
        program = share_terms(share_parts(program))
    with log.step("scop"):
        scop = program_to_scop(program, context_condition(context))
    relations = Relations(scop, presburger, effort)
    found = _proved_tree(scop, relations, options, log)
    with log.step("lower"):
        kernel = kernel_around(found.nest, program, layouts, found.private, context)
    return Scheduled(
        program, scop, found.dependences, found.tree, kernel, tuple(log.notes), log.milliseconds
    )


def _normalised(program: Program, presburger: Presburger, effort: Effort) -> Program:
    try:
        with effort.bounded():
            return normalise(program, presburger)
    except Exhausted:
        return normalise(program, None)


class _Found(Struct, frozen=True):
    dependences: Dependences
    tree: Tree
    private: Mapping[str, frozenset[str]]
    nest: Node


def _proved_tree(scop: Scop, relations: Relations, options: Options, log: _Log) -> _Found:
    """The tree of the first strategy that can be proved, with orders, and its loop nest."""
    dependences = Dependences((), relations)
    try:
        with log.step("dependences"), relations.effort.bounded():
            dependences = scop_dependences(scop, relations)
        for strategy in _strategies(options):
            found = _attempt(scop, dependences, strategy, log)
            if found is not None:
                return found
    except (Exhausted, isl.Error) as e:
        log.notes.append(f"dependences: {_reason(e, relations)}: order of the text")
    tree = fuse(scop, dependences, "min", "min", log.notes)
    return _Found(dependences, tree, {}, tree_to_loops(tree, scop))


Strategy = tuple[Scheduler, Fusion, Fusion]


def _strategies(options: Options) -> Iterator[Strategy]:
    """The scheduler, the fusion of outer loops, and that of loops inside of them."""
    if options.scheduler == "isl":
        yield "isl", options.fusion, options.fusion
    if options.inner_fusion != "same":
        yield "align", options.fusion, options.inner_fusion
    for fusion in _FUSIONS[_FUSIONS.index(options.fusion) :]:
        yield "align", fusion, fusion


def _attempt(scop: Scop, dependences: Dependences, strategy: Strategy, log: _Log) -> _Found | None:
    """What one strategy yields, or None (with a note) if that cannot be used."""
    scheduler, fusion, inner = strategy
    try:
        with dependences.relations.effort.bounded():
            return _scheduled(scop, dependences, strategy, log)
    except (Unsuitable, Exhausted, isl.Error) as e:
        reason = _reason(e, dependences.relations)
    inside = "" if inner == fusion else f", inside {inner}"
    log.notes.append(f"scheduler {scheduler}, fusion {fusion}{inside}: {reason}")
    return None


def _reason(e: Exception, relations: Relations) -> str:
    match e:
        case Exhausted():
            return f"no proof within {relations.effort.most} operations"
        case Unsuitable():
            return str(e)
        case _:
            return "isl failed"


def _scheduled(scop: Scop, dependences: Dependences, strategy: Strategy, log: _Log) -> _Found:
    scheduler, fusion, inner = strategy
    relations = dependences.relations
    with log.step("fuse"):
        if scheduler == "isl":
            tree = isl_schedule(scop, dependences, fusion)
        else:
            tree = fuse(scop, dependences, fusion, inner, log.notes)
    with log.step("prove"):
        proof = prove(tree, scop, dependences)
    if not proof.is_legal:
        raise Unsuitable(f"not proved: {proof.violations[0]}")
    with log.step("storage"):
        private = private_loops(tree, scop, relations)
    with log.step("orders"):
        orders = loop_orders(tree, scop, dependences, proof, private)
        tree = with_orders(tree, orders)
        tree = with_pipelines(tree, pipelines(tree, scop, dependences))
    with log.step("lower"):
        nest = _nest(tree, scop, relations)
    return _Found(dependences, tree, private_around_uses(nest, private), nest)


def _nest(tree: Tree, scop: Scop, relations: Relations) -> Node:
    if has_bounds(tree, scop):
        return tree_to_loops(tree, scop)
    from tcsym.polyhedral.isl_ast import tree_to_nest  # few programs need it

    return tree_to_nest(tree, scop, relations)
