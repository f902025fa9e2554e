# SPDX-License-Identifier: Apache-2.0
"""Every planted bug still has its place: the code that it breaks is there, once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tcsym.errors import TCError
from tcsym.runtime.native import HAS_ENTRIES
from tests.mutants import twin
from tests.mutants.model import DoesNotApply, Mutant, place_of
from tests.mutants.reach import MARK, marked
from tests.mutants.table import MUTANTS, PARTS

LEAST = 60


def test_names_are_unique_and_there_are_enough() -> None:
    every = [m for part in PARTS.values() for m in part]
    assert len(MUTANTS) == len(every) >= LEAST


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_applies_and_compiles(name: str) -> None:
    place = place_of(MUTANTS[name])
    compile(place.text, place.path, "exec")


def test_a_text_that_is_gone_or_ambiguous_is_told() -> None:
    gone = Mutant("gone", "", "ceildiv", "no such text", "")
    twice = Mutant("twice", "", "floordiv", "return", "")
    for mutant, n in ((gone, 0), (twice, 6)):
        with pytest.raises(DoesNotApply, match=f"{mutant.name}: .* found {n} times"):
            place_of(mutant)


def test_the_statement_that_a_mutant_changes_is_marked() -> None:
    names = ("full-version-one-short", "threads-share-scratch")
    for text in marked({name: MUTANTS[name] for name in names}).values():
        compile(text, "", "exec")
        lines = text.splitlines()
        (k,) = (n for n, line in enumerate(lines) if MARK in line)
        (name,) = (n for n in names if f"{MARK}('{n}')" in lines[k])
        assert MUTANTS[name].old in lines[k + 1]


# ---- bugs of devices, planted in this process

CAUGHT = {
    "wait-for-one-less": "product",
    "columns-beyond-the-edge": "integers",
    "no-barrier-between-warps": "softmax",
    "points-unmasked": "points",
}


@contextmanager
def planted_here(mutant: Mutant) -> Iterator[None]:
    """Within, the function has the code of the mutant."""
    place = place_of(mutant)
    function: Any = importlib.import_module(".".join(Path(place.path).with_suffix("").parts))
    code = compile(place.text, place.path, "exec")
    for name in mutant.function.split("."):
        function = getattr(function, name)
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    before, function.__code__ = function.__code__, code
    try:
        yield
    finally:
        function.__code__ = before


@pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
@pytest.mark.parametrize("name", CAUGHT)
def test_the_twin_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "0")  # the code of a mutant is no other's
    with planted_here(MUTANTS[name]), pytest.raises((TCError, AssertionError)):
        twin.run(CAUGHT[name])
