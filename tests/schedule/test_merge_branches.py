# SPDX-License-Identifier: Apache-2.0
"""Neighbouring branches on one condition become one; others stay."""

from __future__ import annotations

from tcsym.frontend.program import Const
from tcsym.index.expr import ZERO, ge, var
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, Verify, block
from tcsym.schedule.split.merge_branches import merge_branches
from tcsym.types import DType


def statement(name: str) -> Node:
    return Verify(Const(0, DType.INT32), name)


A, B, C, D = map(statement, "abcd")
FEW, MANY = ge(3, var("N")), ge(var("N"), 100)


def merged(*nodes: Node) -> Node:
    return merge_branches(Kernel("k", ("N",), (), (), block(*nodes))).body


def test_arms_follow_each_other() -> None:
    assert merged(Branch(FEW, A, B), Branch(FEW, C, D)) == Branch(FEW, block(A, C), block(B, D))


def test_a_missing_arm_is_empty() -> None:
    assert merged(Branch(FEW, A), Branch(FEW, C, D)) == Branch(FEW, block(A, C), D)
    assert merged(Branch(FEW, A), Branch(FEW, C)) == Branch(FEW, block(A, C))


def test_branches_inside_merge_too() -> None:
    inner = [Branch(FEW, Branch(MANY, x)) for x in (A, B)]
    assert merged(*inner) == Branch(FEW, Branch(MANY, block(A, B)))


def test_other_conditions_and_what_stands_between_stay() -> None:
    apart = (Branch(FEW, A), Branch(MANY, B), Branch(FEW, C))
    assert merged(*apart) == Block(apart)
    between = (Branch(FEW, A), D, Branch(FEW, C))
    assert merged(*between) == Block(between)


def test_tasks_and_lanes_are_left_alone() -> None:
    body = Block((Branch(FEW, A), Branch(FEW, B)))
    for kind in ("parallel", "vector"):
        loop = Loop("i", ZERO, var("N"), body, kind)  # type: ignore[arg-type]
        assert merged(loop) == loop
