# SPDX-License-Identifier: Apache-2.0
"""Which elements a run of the reference touches, by arrays that note it: an oracle for `accesses`.

The reference runs a point at a time, on arrays that note with which subscripts they are read. What
is touched between one point and the next was read for the element that the point writes. Nothing
here asks what the interpreter says of its reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np

from tcsym.frontend import interpret as module
from tcsym.frontend import interpret_points
from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import Program, Statement

Edge = tuple[int, str, int, str, int]  # run, statement, its element, tensor, its element


class Noting(np.ndarray[Any, Any]):
    """An array that notes which elements are read by arrays of subscripts."""

    name: str
    notes: list[tuple[str, int]] | None

    def __getitem__(self, at: Any) -> Any:
        plain = self.view(np.ndarray)
        subscripts = at if isinstance(at, tuple) else (at,)
        if all(isinstance(x, np.ndarray) for x in subscripts) and self.notes is not None:
            numbers = np.arange(self.size).reshape(self.shape)[at]
            self.notes += [(self.name, int(n)) for n in np.ravel(numbers)]
        return plain[at]


class Touched:
    """One run. edges: for each element that is written, what was touched for it, how often."""

    def __init__(self, program: Program, inputs: Mapping[str, Any], sizes: Mapping[str, int]):
        self.edges: Counter[Edge] = Counter()
        self.arrays: dict[str, Noting] = {}
        self.last: dict[int, list[tuple[str, int]]] = {}  # of an expression: what it touched
        self.run, self.statement, self.place = -1, None, np.zeros(0, np.int64)
        self.ends: set[tuple[int, str, int, int, int, str, int]] = set()
        self.plain = module._execute, module._image, module.evaluate
        self.positions = module._Image.positions
        with (
            patch.object(interpret_points, "CHUNK", 1),
            patch.object(module, "_execute", self._execute),
            patch.object(module, "_image", self._image),
            patch.object(module, "evaluate", self._evaluate),
            patch.object(module._Image, "positions", lambda i, points: self._written(i, points)),
        ):
            module.interpret(program, inputs, sizes)

    def _execute(self, s: Statement, values: Any, memory: Any) -> None:
        self.statement = s
        for name, x in memory.values.items():
            if not isinstance(x, Noting):
                noting = x.view(Noting)
                noting.name, noting.notes = name, None
                memory.values[name] = self.arrays[name] = noting
        self.plain[0](s, values, memory)

    def _image(self, s: Statement, ranges: Any, values: Any, memory: Any) -> Any:
        self.run += 1  # it writes something
        image = self.plain[1](s, ranges, values, memory)
        shape = memory.values[s.target].shape
        self.place = np.ravel(np.arange(int(np.prod(shape))).reshape(shape)[image.place])
        if s.op != "=" and not s.initialise:
            for element in self.place.tolist():
                self.edges[(self.run, s.name, element, s.target, element)] += 1
        return image

    def _evaluate(self, e: Any, points: Any, memory: Any) -> Any:
        notes: list[tuple[str, int]] = []
        scalars = [n for n, x in memory.values.items() if x.ndim == 0]
        for x in self.arrays.values():
            x.notes = notes
        result = self.plain[2](e, points, memory)
        for x in self.arrays.values():
            x.notes = None
        if not points.count:  # a scalar is looked at for no point
            notes = [note for note in notes if note[0] not in scalars]
        self.last[id(e)] = notes
        return result

    def _written(self, image: Any, points: Any) -> Any:
        found = self.positions(image, points)
        if not points.count:
            return found
        s = self.statement
        assert s is not None
        (position,) = found
        into = (self.run, s.name, int(self.place[position]))
        places = [position_parts(r.at)[1] for r in s.scattered if r.at is not None]
        for e in (s.value, *places):
            for tensor, element in self.last.get(id(e), ()):
                self.edges[(*into, tensor, element)] += 1
        for which, g in enumerate(s.given):  # an end is read once, however long the range
            for k, (tensor, element) in enumerate(self.last[id(g.value)]):
                end = (*into, which, k, tensor, element)
                if end not in self.ends:
                    self.ends.add(end)
                    self.edges[(*into, tensor, element)] += 1
        return found
