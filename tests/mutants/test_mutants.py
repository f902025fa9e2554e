"""Every planted bug still has its place: the code that it breaks is there, once."""

from __future__ import annotations

import pytest

from tests.mutants import analysis, code, passes, serving
from tests.mutants.model import DoesNotApply, Mutant, place_of
from tests.mutants.reach import MARK, marked
from tests.mutants.table import MUTANTS

LEAST = 60


def test_names_are_unique_and_there_are_enough() -> None:
    every = [m for table in (analysis, passes, code, serving) for m in table.MUTANTS]
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
