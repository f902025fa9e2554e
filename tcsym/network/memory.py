# SPDX-License-Identifier: Apache-2.0
"""Bytes of a program's calls as formulas in its sizes, their values, and sizes that fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from msgspec import Struct

from tcsym.errors import OptionError, SizeError
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    ceildiv,
    choose,
    ge,
    index,
    maximum,
    var,
)
from tcsym.index.values import evaluate, substitute
from tcsym.ir.loops import THREADS
from tcsym.network.plan import Plan
from tcsym.process.threads import get_num_threads
from tcsym.runtime.arena import UNIT
from tcsym.sizes.context import Interval, simplified

if TYPE_CHECKING:
    from tcsym.ir.compiled import Compiled
    from tcsym.network.made import MadeStep

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MOST = 1 << 40
_SHOWN = 600  # characters of a formula in a cell


class Memory(Struct, frozen=True):
    """Bytes of a call in a session with exact memory. Each is a formula; `peak` is their sum.

    inputs: of the caller. storages: results, and what kernels hand on. scratch: of kernels, one
    after the other, which depends on the number of threads, too. held: what is made of constants
    when these are bound, by the kernels' versions for these sizes.
    """

    inputs: Index
    storages: Index
    scratch: Index
    held: Index
    sizes: tuple[str, ...]

    @property
    def peak(self) -> Index:
        return self.inputs + self.storages + self.scratch + self.held

    def at(self, threads: int | None = None, **sizes: int) -> int:
        """Bytes at these sizes. Errors: SizeError for sizes that are missing, or none."""
        return evaluate(self.peak, self._values(sizes, threads, ()))

    def largest(
        self, size: str, within: int | str, threads: int | None = None, **sizes: int
    ) -> int:
        """The largest value of a size with which a call takes no more than `within` bytes.

        within: a number of bytes, or text as "8 GB" or "512 MiB". sizes: the others.
        Errors: SizeError if not even 0 fits, or all do; OptionError for text that is no number.
        """
        most = _bytes(within)
        values = self._values(sizes, threads, (size,))
        left = substitute(self.peak, {n: index(v) for n, v in values.items()})
        if size not in self.sizes:
            raise SizeError(f"`{size}` is no size", hint=f"sizes are {', '.join(self.sizes)}")
        if evaluate(left, {size: 0}) > most:
            raise SizeError(f"{within} are too few bytes for any `{size}`")
        if evaluate(left, {size: _MOST}) <= most:
            raise SizeError(f"memory does not limit `{size}`")
        low, high = 0, _MOST  # fits, does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if evaluate(left, {size: middle}) <= most else (low, middle)
        return low

    def _values(
        self, sizes: Mapping[str, int], threads: int | None, open_sizes: tuple[str, ...]
    ) -> dict[str, int]:
        for name in self.sizes:
            if name not in sizes and name not in open_sizes:
                raise SizeError(f"size `{name}` is not given")
        for name in sizes:
            if name not in self.sizes or name in open_sizes:
                raise SizeError(f"`{name}` is no size", hint=f"sizes are {', '.join(self.sizes)}")
        return {**sizes, THREADS: get_num_threads() if threads is None else threads}

    def _parts(self) -> dict[str, str]:
        """The formulas as text."""
        parts = {"inputs": self.inputs, "storages": self.storages, "scratch": self.scratch}
        parts |= {"held": self.held} if self.held != ZERO else {}
        return {name: str(e).replace(THREADS, "threads") for name, e in parts.items()}

    def __str__(self) -> str:
        return "\n".join([f"{name}: {e} bytes" for name, e in self._parts().items()])

    def _repr_html_(self) -> str:
        from tcsym.display.page import framed, paragraph, table

        rows = [(name, shorten(e, _SHOWN, placeholder=" …")) for name, e in self._parts().items()]
        given = ", ".join(f"{name}=…" for name in self.sizes)
        cut = "" if dict(rows) == self._parts() else " `print` shows all of a formula."
        told = f"The sum is `peak`; `at({given})` is its value, `largest` a size that fits.{cut}"
        formulas = table(("of", "bytes"), rows, code=1)
        return framed("Memory", "bytes of a call", formulas, paragraph(told))


def _bytes(within: int | str) -> int:
    if isinstance(within, int):
        return within
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", within)
    if found is None or found[2] not in _UNITS:
        hint = f"use a number and one of {', '.join(n for n in _UNITS if n)}"
        raise OptionError(f"`{within}` is no number of bytes", hint=hint)
    return int(float(found[1]) * _UNITS[found[2]])


def memory_of(plan: Plan) -> Memory:
    """The formulas of a plan; all of its steps are mapped for dense arguments."""
    from tcsym.network.made import made_steps

    made = made_steps(plan)
    needs = [_by_versions(step, _bytes_of) for step in made]
    scratch = _most(needs, var(THREADS))
    for k in range(1, max(map(len, plan.turns), default=0)):
        beside = [needs[turn[k]] for turn in plan.turns if len(turn) > k]
        scratch = scratch + choose(ge(var(THREADS), 2), _most(beside, index(1)), 0)
    given = sum((t.bytes for t in plan.tensors if plan.is_given(t)), ZERO)
    storages = sum((s.bytes for s in plan.storages), ZERO)
    held = sum((plan.tensor(n).bytes for n in plan.held), ZERO)
    held = sum((_by_versions(step, _held_bytes)[0] for step in made), held)
    ranges = dict.fromkeys((*plan.program.sizes, THREADS), Interval(0, None))
    scratch, held = simplified(scratch, ranges), simplified(held, ranges)
    return Memory(given, storages, scratch, held, plan.program.sizes)


def _by_versions(
    made: MadeStep, count: Callable[[Compiled], tuple[Index, ...]]
) -> tuple[Index, ...]:
    """What is counted of a step's code, by the version that serves."""
    needs: tuple[Index, ...] = ()
    for version in reversed(made.table.ranges.versions):
        code = made.part(version, version.variants.dense, whole=False).compiled
        own = count(code)
        if code.leaves_out:
            rest = made.part(version, version.variants.dense, whole=True).compiled
            own = _either(code.left_out, count(rest), own)
        needs = _either(version.context, own, needs) if needs else own
    if made.call.limits.copied:
        rest = made.part(made.wide, made.wide.variants.dense, whole=True).compiled
        needs = _either(all_of(made.call.limits.copied), needs, count(rest))
    return needs


def _held_bytes(code: Compiled) -> tuple[Index, ...]:
    return (sum((n for _, n in code.held), ZERO),)


def _bytes_of(code: Compiled) -> tuple[Index, ...]:
    """That a step shares among threads, and that each task of it needs."""
    private = ceildiv(maximum(0, code.private_bytes), UNIT) * UNIT
    return maximum(0, code.shared_bytes), private


def _either(where: Condition, a: Sequence[Index], b: Sequence[Index]) -> tuple[Index, ...]:
    return tuple([choose(where, x, y) for x, y in zip(a, b, strict=True)])


def _most(needs: Sequence[tuple[Index, ...]], tasks: Index) -> Index:
    """Of kernels that run one after the other in one arena."""
    shared, private = maximum(*[s for s, _ in needs]), maximum(*[p for _, p in needs])
    return shared + private * tasks
