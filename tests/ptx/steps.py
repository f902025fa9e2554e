# SPDX-License-Identifier: Apache-2.0
"""Instruction -> what it does to the threads that run it: a function of them.

Registers hold bits, one array for each, of an element for each thread at hand. What an instruction
reads is taken from the threads that run it, as numbers of its type; what it makes is put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.ptx.text import Function, Instruction, Refused
from tests.ptx.values import KINDS, Pure, pure

if TYPE_CHECKING:
    from tests.ptx.machine import Frame

Array = np.ndarray[Any, Any]
At = Any  # which threads run: all, or numbers of some
Step = Callable[["Frame", At], None]
Reader = Callable[["Frame", At], Array]
Writer = Callable[["Frame", At, Array], None]
SHARED_AT = 1 << 20  # where shared memory begins, of each block
MOST_LANES = 1 << 14
_SPECIAL = re.compile(r"%(?:tid|ctaid|ntid|nctaid)\.x|%laneid")


class Operands:
    """Names in a function -> how threads read and write them. symbols: addresses of arrays."""

    def __init__(self, function: Function, symbols: Mapping[str, int]) -> None:
        self._registers, self._symbols = function.registers, symbols

    def reader(self, text: str, kind: str) -> Reader:
        """Of a register, or a constant, as a value of a numpy type."""
        size = np.dtype(kind).itemsize
        if text in self._registers:
            bits = self._registers[text]
            if kind == "?" or bits == 8 * size:
                return lambda f, at: f.registers[text][at].view(kind)
            if bits < 8 * size or bits == 1:
                raise Refused(f"`{text}` has less than {8 * size} bits")
            return lambda f, at: f.registers[text][at].astype(f"u{size}").view(kind)
        if _SPECIAL.fullmatch(text):
            return lambda f, at: f.special(text)[at]
        made = np.array([self._constant(text, size)], f"u{size}").view(kind)
        constant = np.broadcast_to(made, (MOST_LANES,))
        return lambda f, at: constant[: f.count(at)]

    def _constant(self, text: str, size: int) -> int:
        """Its bits."""
        if text in self._symbols:
            return self._symbols[text]
        if m := re.fullmatch(r"0([fFdDxX])([0-9A-Fa-f]+)U?", text):
            bits = int(m[2], 16)
            if m[1] in "fF" and size == 2:
                raise Refused(f"`{text}` as a number of 16 bits")
            return bits
        if re.fullmatch(r"-?\d+", text):
            return int(text) % (1 << 8 * size)
        raise Refused(f"operand `{text}`")

    def writer(self, name: str, kind: str) -> Writer:
        """Into a register: what has fewer bits is extended, with its sign if it has one."""
        if name == "_":
            return lambda f, at, values: None
        bits = self._registers[name]
        if kind == "?":
            if bits != 1:
                raise Refused(f"`{name}` is no predicate")
            return _put_predicate(name)
        wide, size = f"u{bits // 8}", np.dtype(kind).itemsize
        if bits < 8 * size:
            raise Refused(f"`{name}` has less than {8 * size} bits")
        if bits == 8 * size:
            return lambda f, at, v: _put(f, at, name, np.asarray(v, kind).view(wide))
        extended = f"{'i' if kind[0] == 'i' else 'u'}{bits // 8}"
        return lambda f, at, v: _put(f, at, name, np.asarray(v, kind).astype(extended).view(wide))

    def address(self, text: str) -> Reader:
        """Of `[register+offset]`."""
        m = re.fullmatch(r"\[([%\w$]+)(?:\+(-?\d+))?\]", text)
        if m is None:
            raise Refused(f"address `{text}`")
        base, offset = self.reader(m[1], "u8"), int(m[2] or 0)
        if not offset:
            return base
        added = np.array([offset], "i8").view("u8")
        return lambda f, at: base(f, at) + added


def _put(f: Frame, at: At, name: str, values: Array) -> None:
    f.registers[name][at] = values


def _put_predicate(name: str) -> Writer:
    def put(f: Frame, at: At, values: Array) -> None:
        f.registers[name][at] = values

    return put


def several(text: str) -> list[str]:
    """What stands in braces, or the one operand itself."""
    return [x.strip() for x in text.strip("{}").split(",")]


def step_of(instruction: Instruction, operands: Operands) -> Step:
    """All but what ends a block. Raises Refused, with the line."""
    from tests.ptx.effects import effect_of

    try:
        is_parted = instruction.name.startswith("mov.") and "{" in str(instruction)
        found = None if is_parted else pure(instruction.name)
        step = (
            effect_of(instruction, operands)
            if found is None
            else _valued(found, instruction, operands)
        )
        return step if not instruction.guard else _guarded(step, instruction.guard)
    except (Refused, KeyError, IndexError, ValueError) as error:
        raise Refused(f"{instruction}: {error}") from error


def is_known(name: str) -> bool:
    """Whether there are instructions of that name that can be run."""
    from tests.ptx.effects import is_effect

    ends = name in ("bra", "bra.uni", "bar.sync", "ret")
    return ends or pure(name) is not None or is_effect(name)


def _valued(how: Pure, instruction: Instruction, operands: Operands) -> Step:
    to, *given = instruction.operands
    if len(given) != len(how.operands):
        raise Refused(f"{len(given)} operands")
    readers = [operands.reader(x, kind) for x, kind in zip(given, how.operands)]
    write, make = operands.writer(to, how.result), how.how
    if len(readers) == 1:
        (read,) = readers
        return lambda f, at: write(f, at, make(read(f, at)))
    if len(readers) == 2:
        one, two = readers
        return lambda f, at: write(f, at, make(one(f, at), two(f, at)))
    return lambda f, at: write(f, at, make(*[read(f, at) for read in readers]))


def _guarded(step: Step, guard: str) -> Step:
    """For those threads for which it holds."""

    def run(f: Frame, at: At) -> None:
        lanes = f.lanes[at]
        holding = lanes[f.guard(guard, at)]
        if holding.size:
            step(f, holding)

    return run


def kind_of(name: str) -> str:
    """numpy's type for the last part of an instruction's name."""
    return KINDS[name.rpartition(".")[2]]
