# SPDX-License-Identifier: Apache-2.0
"""Buffers of the executor: elements by subscripts, of which those not set cannot be read."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from msgspec import Struct

from tcsym.ir.loops import Buffer

POISON = -987654321


class Memory(dict[tuple[int, ...], Any]):
    """One buffer: what was set, by subscripts. What was not is missing; reading it is an error."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.buffer, self.shape = buffer, shape
        self.sums: dict[tuple[int, ...], tuple[float, float]] = {}  # as rounded, and before

    def sum(self, at: tuple[int, ...]) -> float:
        """What was added up to this element: not rounded yet, if nothing was stored meanwhile."""
        value = self[at]
        rounded, wide = self.sums.get(at, (value, value))
        return wide if rounded == value else value

    def place(self, at: tuple[int, ...]) -> tuple[int, ...]:
        return place_in(self.buffer, self.shape, at)

    def __missing__(self, at: tuple[int, ...]) -> Any:
        if self.place(at) in self:
            return self[self.place(at)]
        inside = len(at) == len(self.shape) and all(0 <= i < n for i, n in zip(at, self.shape))
        what = "unset" if inside else f"outside {self.shape}"
        raise AssertionError(f"{self.buffer.name}{list(at)} {what}")

    def checked(self, *at: int) -> tuple[int, ...]:
        """The place of an element to be set."""
        if at in self:
            return at
        at = self.place(at)
        return at if all(map(_is_inside, at, self.shape)) else self[at]

    def copied(self, *at: int) -> Any:
        """What an element holds, perhaps nothing: who copies it need not use the copy."""
        at = self.place(at)
        inside = at in self or self.buffer.padded or all(map(_is_inside, at, self.shape))
        return self.get(at, POISON) if inside else self[at]

    def move(self, value: Any, *at: int) -> None:
        """Sets what may never have been set itself."""
        if value is POISON:
            self.pop(self.checked(*at), None)
        else:
            self[self.checked(*at)] = value

    def run_on(self, at: list[int], dimension: int) -> tuple[int, ...]:
        """The place whose last subscript counts through all dimensions inside that one."""
        inner = self.shape[dimension + 1 :]
        place = sum(i * math.prod(inner[d + 1 :]) for d, i in enumerate(at[dimension + 1 :]))
        if not inner or place not in range(math.prod(inner)):
            return tuple(at)
        return (*at[: dimension + 1], *map(int, np.unravel_index(place, inner)))

    def load(self, array: np.ndarray) -> None:
        places = itertools.product(*map(range, self.shape))
        self.update(zip(places, array.ravel().tolist()))

    def save(self, array: np.ndarray) -> None:
        for at, value in self.items():
            array[at] = value


def place_in(b: Buffer, shape: tuple[int, ...], at: tuple[int, ...]) -> tuple[int, ...]:
    """Where rows of an argument run on into the next: see `ir.loops.Buffer`."""
    if b.space != "argument" or b.strides is not None:
        return at
    for d in range(len(at) - 1, 0, -1):
        if at[d] >= shape[d] > 0:
            rows, rest = divmod(at[d], shape[d])
            at = (*at[: d - 1], at[d - 1] + rows, rest, *at[d + 1 :])
    return at


def _is_inside(i: int, n: int) -> bool:
    return 0 <= i < n


class Clock(Struct):
    """Who runs: the thread of a block of a grid, or, with thread None, the host. `epoch` counts the
    barriers of the block."""

    grid: int = 0
    block: int = 0
    epoch: int = 0
    thread: int | None = None


class Tracked(Memory):
    """Memory that threads of a device share: two that touch one element at once are an error."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], clock: Clock) -> None:
        super().__init__(buffer, shape)
        self.clock = clock
        self.touched: dict[tuple[int, ...], set[tuple[int, int, int, int, bool]]] = {}
        self.flying: set[tuple[int, ...]] = set()  # begun to be copied, and not waited for

    def touch(self, at: tuple[int, ...], writes: bool) -> None:
        now = self.clock
        if now.thread is None:
            return
        name = f"{self.buffer.name}{list(at)}"
        assert at not in self.flying, f"{name} is still being copied"
        seen = self.touched.setdefault(self.place(at), set())
        for grid, block, epoch, thread, wrote in seen:
            apart = thread == now.thread or epoch < now.epoch
            apart = apart if block == now.block else grid < now.grid
            assert apart or not (writes or wrote), f"threads race at {name}"
        seen.add((now.grid, now.block, now.epoch, now.thread, writes))

    def __getitem__(self, at: tuple[int, ...]) -> Any:
        self.touch(at, False)
        return super().__getitem__(at)

    def __setitem__(self, at: tuple[int, ...], value: Any) -> None:
        self.touch(at, True)
        super().__setitem__(at, value)

    def copied(self, *at: int) -> Any:
        self.touch(at, False)
        return super().copied(*at)

    def move(self, value: Any, *at: int) -> None:
        self.touch(at, True)
        super().move(value, *at)

    def take_off(self, at: tuple[int, ...]) -> None:
        """A copy to there begins: what was there is gone."""
        at = self.checked(*at)
        self.touch(at, True)
        self.pop(at, None)
        self.flying.add(at)

    def land(self, at: tuple[int, ...], value: Any) -> None:
        self.flying.discard(at)
        self[at] = value
