# SPDX-License-Identifier: Apache-2.0
"""Faults planted in PTX: each makes one instruction of a text another, or takes it away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.ptx.text import Instruction


class Mutant(NamedTuple):
    """What is written at a line in place of what stands there."""

    kind: str
    line: int
    before: str
    after: str

    def text(self, ptx: str) -> str:
        lines = ptx.splitlines(keepends=True)
        place = sum(map(len, lines[: self.line - 1]))
        assert ptx.startswith(self.before, place)
        return ptx[:place] + self.after + ptx[place + len(self.before) :]


def _dropped(statement: str, s: Instruction) -> str:
    return ""


def _swapped(first: int, second: int, of: int) -> Callable[[str, Instruction], str]:
    """Two registers of operand `of`, which are among several."""

    def change(statement: str, s: Instruction) -> str:
        registers = [x.strip() for x in s.operands[of].strip("{}").split(",")]
        registers[first], registers[second] = registers[second], registers[first]
        return statement.replace(s.operands[of], "{" + ", ".join(registers) + "}")

    return change


def _another_lane(statement: str, s: Instruction) -> str:
    return statement.replace(", 31, -1", ", 0x1f1f, -1")  # its own


def _no_count(statement: str, s: Instruction) -> str:
    """All bytes, whatever the predicate says that chooses how many."""
    return statement.replace(f", {s.operands[3]};", ";") if len(s.operands) > 3 else statement


def _always(statement: str, s: Instruction) -> str:
    return statement.replace(f"@{s.guard} ", "")


def _one_more_pending(statement: str, s: Instruction) -> str:
    return statement.replace(s.operands[0], str(int(s.operands[0]) + 1))


# Kinds of faults -> the instructions that have them, and how.
KINDS: dict[str, tuple[str, Callable[[str, Instruction], str]]] = {
    "no barrier": (r"bar\.sync", _dropped),
    "no wait": (r"cp\.async\.wait_group", _dropped),
    "a short wait": (r"cp\.async\.wait_group", _one_more_pending),
    "no commit": (r"cp\.async\.commit_group", _dropped),
    "no copy": (r"cp\.async\.c[ag]\..*", _dropped),
    "no zeros": (r"cp\.async\.c[ag]\..*", _no_count),
    "left swapped": (r"mma\..*", _swapped(1, 2, 1)),
    "right swapped": (r"mma\..*", _swapped(0, 1, 2)),
    "sums swapped": (r"mma\..*", _swapped(1, 2, 3)),
    "matrices swapped": (r"ldmatrix\..*", _swapped(0, 1, 0)),
    "not transposed": (r"ldmatrix\..*\.trans\..*", lambda t, s: t.replace(".trans", "")),
    "another lane": (r"shfl\.sync\..*", _another_lane),
    "a predicate dropped": (r"bra", _always),
    "a branch dropped": (r"bra", _dropped),
    "no fence": (r"membar\.gl", _dropped),
    "no arrival": (r"atom\..*", _dropped),
}


def mutants(ptx: str, ran: Iterable[Instruction], kinds: tuple[str, ...]) -> Iterator[Mutant]:
    """Of the instructions that ran."""
    lines = ptx.splitlines(keepends=True)
    for s in ran:
        for kind in kinds:
            pattern, change = KINDS[kind]
            if not re.fullmatch(pattern, s.name) or (s.name == "bra" and not s.guard):
                continue
            rest = "".join(lines[s.line - 1 : s.line + 8])
            statement = rest[: rest.index(";") + 1]
            after = change(re.sub(r"\s+", " ", statement), s)
            if after != re.sub(r"\s+", " ", statement):
                yield Mutant(kind, s.line, statement, after)
