"""Bytes of a program's calls as formulas in its sizes, their values, and sizes that fit."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from tcsym.errors import OptionError, SizeError
from tcsym.index.expr import ZERO, Index, ceildiv, index, maximum, var
from tcsym.index.values import evaluate, substitute
from tcsym.ir.loops import THREADS
from tcsym.network.plan import Plan
from tcsym.process.threads import get_num_threads
from tcsym.runtime.arena import UNIT
from tcsym.runtime.arrays import dense_view
from tcsym.sizes.context import Interval, simplified

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MOST = 1 << 40


class Memory(Struct, frozen=True):
    """Bytes of a call in a session with exact memory. Each is a formula; `peak` is their sum.

    inputs: of the caller. storages: results, and what kernels hand on. scratch: of kernels, which
    depends on the number of threads, too.
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
    """The formulas of a plan; all of its steps are compiled for dense arguments."""
    from tcsym.network.made import made_steps

    scratch = ZERO
    for made in made_steps(plan):
        arguments = (*made.step.program.inputs, *made.step.program.outputs)
        views = [dense_view((2,) * len(t.shape), t.dtype) for t in arguments]
        needs = ZERO
        for version in made.table.versions:
            code = version.prepared(views).compiled
            private = ceildiv(maximum(0, code.private_bytes), UNIT) * UNIT
            needs = maximum(needs, maximum(0, code.shared_bytes) + private * var(THREADS))
        scratch = scratch + needs
    given = sum((t.bytes for t in plan.tensors if t.storage is None), ZERO)
    storages = sum((s.bytes for s in plan.storages), ZERO)
    ranges = dict.fromkeys((*plan.program.sizes, THREADS), Interval(0, None))
    return Memory(given, storages, simplified(scratch, ranges), plan.program.sizes)
