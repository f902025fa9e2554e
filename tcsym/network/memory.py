"""Bytes of a program's calls as formulas in its sizes, their values, and sizes that fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tcsym.errors import OptionError, SizeError
from tcsym.index.expr import ZERO, Condition, Index, ceildiv, choose, ge, index, maximum, var
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


class Memory(Struct, frozen=True):
    """Bytes of a call in a session with exact memory. Each is a formula; `peak` is their sum.

    inputs: of the caller. storages: results, and what kernels hand on. scratch: of kernels, one
    after the other, which depends on the number of threads, too.
    """

    inputs: Index
    storages: Index
    scratch: Index
    sizes: tuple[str, ...]

    @property
    def peak(self) -> Index:
        return self.inputs + self.storages + self.scratch

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

    def __str__(self) -> str:
        parts = {"inputs": self.inputs, "storages": self.storages, "scratch": self.scratch}
        text = "\n".join([f"{name}: {e} bytes" for name, e in parts.items()])
        return text.replace(THREADS, "threads")


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

    needs = [_scratch(made) for made in made_steps(plan)]
    scratch = _most(needs, var(THREADS))
    for k in range(1, max(map(len, plan.turns), default=0)):
        beside = [needs[turn[k]] for turn in plan.turns if len(turn) > k]
        scratch = scratch + choose(ge(var(THREADS), 2), _most(beside, index(1)), 0)
    given = sum((t.bytes for t in plan.tensors if t.storage is None), ZERO)
    storages = sum((s.bytes for s in plan.storages), ZERO)
    ranges = dict.fromkeys((*plan.program.sizes, THREADS), Interval(0, None))
    return Memory(given, storages, simplified(scratch, ranges), plan.program.sizes)


def _scratch(made: MadeStep) -> tuple[Index, Index]:
    """Bytes that a step shares among threads, and that each task of it needs: by its versions."""
    needs = ZERO, ZERO
    for version in reversed(made.table.ranges.versions):
        code = made.part(version, version.variants.dense, whole=False).compiled
        own = _bytes_of(code)
        if code.leaves_out:
            rest = made.part(version, version.variants.dense, whole=True).compiled
            own = _either(code.left_out, _bytes_of(rest), own)
        is_last = version is made.table.ranges.versions[-1]
        needs = own if is_last else _either(version.context, own, needs)
    return needs


def _bytes_of(code: Compiled) -> tuple[Index, Index]:
    private = ceildiv(maximum(0, code.private_bytes), UNIT) * UNIT
    return maximum(0, code.shared_bytes), private


def _either(where: Condition, a: Sequence[Index], b: Sequence[Index]) -> tuple[Index, Index]:
    return choose(where, a[0], b[0]), choose(where, a[1], b[1])


def _most(needs: Sequence[tuple[Index, Index]], tasks: Index) -> Index:
    """Of kernels that run one after the other in one arena."""
    shared, private = maximum(*[s for s, _ in needs]), maximum(*[p for _, p in needs])
    return shared + private * tasks
