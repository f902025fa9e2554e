# SPDX-License-Identifier: Apache-2.0
"""PTX text -> functions: basic blocks of instructions, told apart by what threads wait for.

Reference: PTX ISA, 4 (syntax), 9 (instructions). A text may have entries, functions of numbers that
they call, arrays of constants, and one array of shared memory; all else is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple


class Refused(Exception):
    """PTX that the interpreter does not know, or that the ISA does not allow."""


class Instruction(NamedTuple):
    """`@guard name operands;`. guard: of a predicate, with `!` in front where it must not hold."""

    guard: str
    name: str
    operands: tuple[str, ...]
    line: int

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"line {self.line}: {guard}{self.name} {', '.join(self.operands)}"


Ending = Literal["jump", "branch", "barrier", "return"]


class Block(NamedTuple):
    """Instructions without a branch, and where threads go then: `then`; with a branch that is
    taken, `taken`. last: what it ends with, if that is no instruction as others are. together:
    threads begin it as whole warps."""

    instructions: tuple[Instruction, ...]
    ending: Ending
    taken: int
    then: int
    last: Instruction | None
    together: bool


class Function(NamedTuple):
    """registers: names -> bits, 1 for predicates. parameters: in order. most_threads: of a block;
    0: of a function that others call."""

    name: str
    parameters: tuple[str, ...]
    registers: dict[str, int]
    blocks: tuple[Block, ...]
    most_threads: int


class Text:
    """A module. constants: names of arrays -> their bytes."""

    def __init__(self, text: str) -> None:
        self._text = "\n".join(line.partition("//")[0] for line in text.splitlines())
        rest = _CONSTANT.sub("", _FUNCTION.sub("", self._text))
        for statement in filter(None, map(str.strip, rest.splitlines())):
            if not statement.startswith(_HEAD):
                raise Refused(f"`{statement}` outside of functions")
        self._functions = {m[2]: m for m in _FUNCTION.finditer(self._text)}
        found = _CONSTANT.finditer(self._text)
        self.constants = {m[1]: bytes(map(int, m[2].split(","))) for m in found}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def function(self, name: str) -> Function:
        return _function(self._functions[name], self._text)


_FUNCTION = re.compile(
    r"^\.(?:visible \.entry|func)\s+(\(.*?\))?\s*([\w$]+)\((.*?)\)(.*?)^\{(.*?)^\}", re.M | re.S
)
_PARAMETER = re.compile(r"\.param \.[ub]64(?: \.ptr \.global \.align \d+)? ([\w$]+)")
_REGISTER = re.compile(r"\.reg \.(pred|b16|b32|b64)\s+(%[a-z]+)<(\d+)>;")
_LOCAL = re.compile(r"^\s*(?:[{}]|\.param \.b64\s+\w+;)\s*$", re.M)
_CONSTANT = re.compile(r"^\.global \.align \d+ \.b8 ([\w$]+)\[\d+\] = \{(.*?)\};", re.M)
_STATEMENT = re.compile(r"(?:@(!?%p\d+)\s+)?([a-z][\w.:]*)\s*(.*)", re.S)
_BITS = {"pred": 1, "b16": 16, "b32": 32, "b64": 64}
_HEAD = (".version", ".target", ".address_size", ".extern .shared .align 128 .b8 shared[];")
# What all threads of a warp do at once: they come to it together.
TOGETHER = ("shfl.sync", "ldmatrix.sync", "mma.sync")


def _function(m: re.Match[str], text: str) -> Function:
    name, given, head, body = m[2], m[3], m[4], m[5]
    parameters = tuple(_PARAMETER.findall(given))
    if len(parameters) != given.count(".param"):
        raise Refused(f"`{name}` has parameters that are not of 64 bits")
    registers = {
        f"{prefix}{k}": _BITS[kind]
        for kind, prefix, count in _REGISTER.findall(body)
        for k in range(int(count))
    }
    first_line = text[: m.start(5)].count("\n") + 1
    body = _LOCAL.sub("", _REGISTER.sub("", body))
    blocks = _blocks(list(_statements(body, first_line)))
    threads = re.search(r"\.maxntid (\d+)", head)
    return Function(name, parameters, registers, blocks, int(threads[1]) if threads else 0)


def _statements(body: str, first_line: int) -> Iterator[Instruction | str]:
    """Instructions, and labels by name."""
    line = first_line
    for part in re.split(r"(?<=[;:])(?=\s)", body):
        statement = part.strip()
        at = line + part[: len(part) - len(part.lstrip())].count("\n")
        line += part.count("\n")
        if statement.endswith(":"):
            yield statement[:-1]
        elif statement:
            m = _STATEMENT.fullmatch(statement.removesuffix(";"))
            if m is None:
                raise Refused(f"line {at}: `{statement}`")
            yield Instruction(m[1] or "", m[2], tuple(_operands(m[3])), at)


def _operands(text: str) -> list[str]:
    """Parted by commas outside of braces, brackets and parentheses."""
    found, depth = [""], 0
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and not depth:
            found.append("")
        else:
            found[-1] += c
    return [x.strip() for x in found if x.strip()]


def _blocks(statements: Sequence[Instruction | str]) -> tuple[Block, ...]:
    """Cut at labels, behind branches and barriers, and before what warps do together."""
    parts: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for s in statements:
        if isinstance(s, str):
            if parts[-1]:
                parts.append([])
            labels[s] = len(parts) - 1
            continue
        if _is_together(s) and parts[-1] and not _is_together(parts[-1][0]):
            parts.append([])
        parts[-1].append(s)
        if _ending(s) is not None:
            parts.append([])
    while not parts[-1]:
        parts.pop()
    return tuple(_block(part, k, labels) for k, part in enumerate(parts))


def _is_together(s: Instruction) -> bool:
    return s.name.startswith(TOGETHER)


def _ending(s: Instruction) -> Ending | None:
    if s.name in ("bra", "bra.uni"):
        return "branch" if s.guard else "jump"
    if s.name in ("bar.sync", "ret"):
        if s.guard or s.operands not in ((), ("0",)):
            raise Refused(str(s))
        return "barrier" if s.name == "bar.sync" else "return"
    return None


def _block(part: Sequence[Instruction], number: int, labels: dict[str, int]) -> Block:
    last = part[-1]
    ending = _ending(last)
    body = tuple(part if ending is None else part[:-1])
    together = bool(body) and _is_together(body[0])
    taken = then = number + 1
    if ending in ("branch", "jump"):
        taken = labels[last.operands[0]]
        then = taken if ending == "jump" else number + 1
    return Block(body, ending or "jump", taken, then, last if ending else None, together)
