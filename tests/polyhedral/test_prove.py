# SPDX-License-Identifier: Apache-2.0
"""Legality as algebra: trees that break a dependence or lose an instance are refused."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.effort import Effort
from tcsym.index.expr import ONE, index, var
from tcsym.index.presburger import Presburger
from tcsym.options import Options
from tcsym.polyhedral.dependence import Dependences, scop_dependences
from tcsym.polyhedral.fuse import fuse
from tcsym.polyhedral.prove import Proof, prove
from tcsym.polyhedral.relations import Relations
from tcsym.polyhedral.scop import Scop, program_to_scop
from tcsym.polyhedral.tree import Leaf, Sequence, Tree, TreeLoop, sequence
from tcsym.proved import schedule_program
from tcsym.rewrite.normalise import normalise
from tests.polyhedral.programs import SOURCES, program


def _stage(name: str) -> tuple[Scop, Dependences, Tree]:
    source = program(name)
    presburger = Presburger(source.sizes)
    scop = program_to_scop(normalise(source, presburger))
    dependences = scop_dependences(
        scop, Relations(scop, presburger, Effort(presburger.context, 10**6))
    )
    return scop, dependences, fuse(scop, dependences, "max", "max", [])


def _proof(name: str, tree: Tree) -> Proof:
    scop, dependences, _ = _stage(name)
    return prove(tree, scop, dependences)


def test_fused_trees_are_legal() -> None:
    for name in SOURCES:
        scop, dependences, tree = _stage(name)
        assert prove(tree, scop, dependences).is_legal, name


def _map_sequences(t: Tree, f: object) -> Tree:
    match t:
        case Sequence(children):
            return sequence(f([_map_sequences(c, f) for c in children]))  # type: ignore[operator]
        case TreeLoop():
            return replace(t, body=_map_sequences(t.body, f))
    return t


def test_swapped_statements_are_refused() -> None:
    for name in ("matmul_bias_relu", "softmax", "layer_norm", "attention", "rnn"):
        _, _, tree = _stage(name)
        swapped = _map_sequences(tree, lambda children: list(reversed(children)))
        proof = _proof(name, swapped)
        assert not proof.is_legal
        assert "stands before" in proof.violations[0] or "turned round" in proof.violations[0]


def test_tree_without_the_time_loop_is_refused() -> None:
    for name in ("rnn", "prefix_sum", "carried_state"):
        _, _, tree = _stage(name)

        def without(t: Tree) -> Tree:
            match t:
                case TreeLoop() if t.variable in ("t", "i") and t.lower == index(0):
                    return without(t.body)
                case TreeLoop():
                    return replace(t, body=without(t.body))
                case Sequence(children):
                    return Sequence(tuple(map(without, children)))
            return t

        assert not _proof(name, without(tree)).is_legal


def test_time_loop_inside_the_batch_loop_is_refused() -> None:
    """h(t-1,b,k) is read at all k: o cannot be outside t; nor can t run backwards."""
    scop, dependences, tree = _stage("rnn")
    assert isinstance(tree, TreeLoop)
    backwards = replace(
        tree,
        members=tuple(replace(m, value=-m.value) for m in tree.members),
        lower=None,
        upper=None,
    )
    proof = prove(backwards, scop, dependences)
    assert "turned round by loop t" in proof.violations[0]


def test_shifted_and_skewed_members_are_compared_exactly() -> None:
    scop, dependences, tree = _stage("prefix_sum")
    assert isinstance(tree, TreeLoop)
    early, late = tree.members

    def shifted(by: int) -> Tree:
        members = (early, replace(late, value=late.value + ONE * by))
        return replace(tree, members=members, lower=None, upper=None)

    assert prove(shifted(0), scop, dependences).is_legal
    assert prove(shifted(1), scop, dependences).is_legal
    assert not prove(shifted(-3), scop, dependences).is_legal


def test_fusing_a_producer_with_a_moved_reader_is_refused() -> None:
    """Y(i) = X(i); Y(i) = Y(N-1-i) + 1: the copy and its reader cannot share a loop."""
    scop, dependences, tree = _stage("shift_in_place")
    assert isinstance(tree, Sequence)
    loops = [t for t in tree.children if isinstance(t, TreeLoop)]
    fused = replace(
        loops[0],
        members=tuple(m for t in loops for m in t.members),
        body=sequence([t.body for t in loops]),
    )
    assert not prove(fused, scop, dependences).is_legal


def test_lost_doubled_and_undetermined_instances_are_refused() -> None:
    _, _, tree = _stage("column_sum")
    assert isinstance(tree, TreeLoop)
    assert isinstance(tree.body, Sequence)
    init, loop = tree.body.children
    assert "once" in _proof("column_sum", replace(tree, body=loop)).violations[0]
    doubled = replace(tree, body=Sequence((init, loop, Leaf("S0"))))
    assert "once" in _proof("column_sum", doubled).violations[0]
    assert isinstance(loop, TreeLoop)
    dropped = replace(tree, body=Sequence((init, loop.body)))
    assert "determine" in _proof("column_sum", dropped).violations[0]
    narrow = replace(tree, upper=var("M"))
    assert "bounds" in _proof("column_sum", narrow).violations[0]


def test_a_bound_falls_back_to_the_order_of_the_text() -> None:
    s = schedule_program(program("rnn"), Options(max_operations=1), {})
    assert s.notes == ("dependences: no proof within 1 operations: order of the text",)
    assert [x.name for x in s.scop.statements] == [
        *("S0.steps.init", "S0.steps", "S0", "S1", "S2", "S3")
    ]
