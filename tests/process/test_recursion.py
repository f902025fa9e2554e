"""`deep_recursion` raises the limit for a while and keeps the memory of frames mapped."""

from __future__ import annotations

import gc
import resource
import sys
import weakref

import pytest

from tcsym.errors import TCSyntaxError
from tcsym.process import recursion
from tcsym.process.recursion import ROOM, deep_recursion


def below(depth: int) -> int:
    return 0 if depth == 0 else 1 + below(depth - 1)


def faults_of_calls() -> int:
    """Page faults of many calls 100 frames deep: they cross the end of a 16 KB chunk."""
    below(100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for depth in range(40, 100):
        for _ in range(20):
            below(depth)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_limit_is_raised_inside_only() -> None:
    limit = sys.getrecursionlimit()
    assert deep_recursion(sys.getrecursionlimit)() == max(limit, ROOM)
    assert deep_recursion(below)(5000) == 5000
    assert sys.getrecursionlimit() == limit


def test_errors_restore_the_limit() -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(ZeroDivisionError):
        deep_recursion(lambda: 1 // 0)()
    assert sys.getrecursionlimit() == limit


def test_what_is_deeper_is_an_error_of_ours() -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(TCSyntaxError, match="too deep"):
        deep_recursion(below)(2 * ROOM)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_not_collected_inside(collects: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        assert not deep_recursion(gc.isenabled)()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def many_objects() -> list[list[int]]:
    return [[k] for k in range(100_000)]


def test_what_was_made_is_not_searched_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion, "_n_aged", 0)
    searches: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        searches.append(about["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        made = deep_recursion(many_objects)()
        more = [[k] for k in range(gc.get_threshold()[0] // 2)]
        assert searches == []
        assert len(gc.get_objects(generation=0)) < len(made)
        assert len(gc.get_objects(generation=2)) > len(made) + len(more)
    finally:
        gc.callbacks.remove(note)


def test_garbage_of_many_compilations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(recursion, "_n_aged", 0)
    gc.collect()
    circles = [weakref.ref(deep_recursion(Circle)()) for _ in range(recursion._MOST_AGED + 1)]
    gc.collect(0)
    assert [circle() is not None for circle in circles] == [True] * recursion._MOST_AGED + [False]
    gc.collect()
    assert all(circle() is None for circle in circles)


def test_what_somebody_froze_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion, "_n_aged", 0)
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        deep_recursion(list)()
        assert count > 0
        assert abs(gc.get_freeze_count() - count) < 100  # some are gone
    finally:
        gc.unfreeze()


def test_frames_are_not_mapped_again() -> None:
    assert deep_recursion(faults_of_calls)() < 100
