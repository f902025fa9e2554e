# SPDX-License-Identifier: Apache-2.0
"""Pieces of code side by side: what tells apart what they touch."""

from __future__ import annotations

import pytest

from tcsym.index.expr import ONE, ZERO, Index, index, minimum, var
from tcsym.ir.loops import Loop, Node, block
from tcsym.ir.sections import sections, side_by_side
from tcsym.ir.verify import InternalError, verify
from tests.ir.device_kernels import N, argument, made, rd, st
from tests.schedule.naive import con

W, TILE = var("w"), var("tile")


def tile_of(name: str, lag: int, *body: Node) -> Node:
    """A tile of steps in wave w, of which the first is var(first)."""
    first, count = f"first_{name}", f"count_{name}"
    at, left = (W - lag) * TILE, minimum(TILE, N - var(first))
    steps = Loop(name, var(first), var(first) + var(count), block(*body))
    inside = Loop(count, left, left + 1, steps)
    return Loop(first, at, at + 1, inside)


def waves(*arms: Node) -> Node:
    body = Loop("w", ZERO, N, side_by_side("s", list(arms), ONE))
    return Loop("tile", index(4), index(5), body)


def check(*arms: Node) -> None:
    buffers = [argument(x, "N") for x in ("X", "Y", "Z")]
    verify(made("waves", "N", buffers, waves(*arms)))


def copied(target: str, source: str, step: str, back: int = 0) -> Node:
    return st(target, (var(step),), rd(source, var(step) - back))


@pytest.mark.parametrize("back", [0, 1, 7])
def test_what_an_earlier_wave_made_may_be_read(back: int) -> None:
    check(tile_of("i", 0, copied("Y", "X", "i")), tile_of("j", 1, copied("Z", "Y", "j", back)))


@pytest.mark.parametrize(("lag", "back"), [(0, 0), (1, -1), (2, -5)])
def test_what_this_wave_makes_may_not(lag: int, back: int) -> None:
    later = tile_of("j", lag, copied("Z", "Y", "j", back))
    with pytest.raises(InternalError, match="sections that are not apart in Y"):
        check(tile_of("i", 0, copied("Y", "X", "i")), later)


def test_one_element_is_no_range() -> None:
    with pytest.raises(InternalError, match="not apart in Z"):
        check(st("Z", (ZERO,), con(1.0)), st("Z", (ZERO,), con(2.0)))
    check(st("Z", (ZERO,), con(1.0)), st("Z", (ONE,), con(2.0)))


def test_arms_are_found_again() -> None:
    arms: list[Node] = [st("Z", (index(k),), con(1.0)) for k in range(3)]
    loop = side_by_side("s", arms, ONE)
    assert sections(loop) == tuple(arms)
    assert sections(Loop("s", ZERO, Index((), 4), loop.body)) == ()
