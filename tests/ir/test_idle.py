# SPDX-License-Identifier: Apache-2.0
"""Lines that are said not to run, against the loops run with a count at each line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.index.expr import ge, var
from tcsym.ir.idle import idle_lines
from tcsym.ir.launched import chosen
from tcsym.ir.loops import THREADS, Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.ir.text import kernel_text
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tests.polyhedral.execute import Machine
from tests.polyhedral.programs import SOURCES, program
from tests.schedule.targets import AVX2
from tests.schedule.test_map_programs import inputs_of


class Counted(Machine):
    """Notes which of the lines that hold no others were run, in the order of the text: an arm of a
    version that has nothing to do is one."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel, None)
        self.n_leaves = 0
        self.ran: Counter[int] = Counter()

    def node(self, n: Node) -> Callable[[dict[str, int]], Any]:
        if isinstance(n, Block | Loop | Branch) and n != Block(()):
            return super().node(n)
        first = self.n_leaves
        self.n_leaves += len(n.buffers) if isinstance(n, Allocate) else 1
        leaves = range(first, self.n_leaves)
        run = super().node(n)

        def noted(env: dict[str, int]) -> None:
            self.ran.update(leaves)
            run(env)

        return noted


def lines_run(kernel: Kernel, inputs: Mapping[str, Any], sizes: dict[str, int]) -> set[int]:
    """Lines of the text that were run, and those that hold one."""
    machine = Counted(kernel)
    known = {THREADS: 2, **sizes}
    machine.run(inputs, dict.fromkeys(kernel.launched, 0) | known | chosen(kernel, known))
    lines = kernel_text(kernel).splitlines()
    depths = [len(line) - len(line.lstrip()) for line in lines]
    first = len(lines) - n_body_lines(kernel.body)
    body = range(first, len(lines))
    leaves = [k for k in body if k + 1 == len(lines) or depths[k + 1] <= depths[k]]
    assert len(leaves) == machine.n_leaves
    ran = {leaves[leaf] for leaf in machine.ran}
    return set(range(first)) | {k for k in body if ran & set(held_by(depths, k))}


def n_body_lines(n: Node) -> int:
    match n:
        case Loop(body=body):
            return 1 + n_body_lines(body)
        case Branch(_, then, orelse):
            return 1 + n_body_lines(then) + (0 if orelse is None else 1 + n_body_lines(orelse))
        case Block(body):
            return sum(map(n_body_lines, body))
        case Allocate(buffers, body):
            return len(buffers) + n_body_lines(body)
        case _:
            return 1


def held_by(depths: Sequence[int], k: int) -> range:
    """A line and those inside of it; those of its `else` are inside of neither."""
    end = k + 1
    while end < len(depths) and depths[end] > depths[k]:
        end += 1
    return range(k, end)


def compared(kernel: Kernel, inputs: Mapping[str, Any], sizes: dict[str, int]) -> tuple[int, int]:
    """How many lines did not run, and of how many that was known: all of these did not run."""
    lines = kernel_text(kernel).splitlines()
    ran = lines_run(kernel, inputs, sizes)
    idle = idle_lines(kernel, sizes, len(lines))
    wrong = [lines[k] for k in sorted(idle & ran)]
    assert not wrong, (sizes, wrong)
    return len(lines) - len(ran), len(idle)


@pytest.mark.thinned(4)
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SOURCES)
def test_lines_that_are_idle_do_not_run(name: str) -> None:
    p = program(name)
    loops = schedule_program(p, Options(), {}).kernel
    mapped = map_cpu(loops, AVX2, Options()).kernel
    rng = np.random.default_rng(len(name))
    unrun, known = 0, 0
    for most in (1, 3, 10):
        sizes = {s: int(rng.integers(1, most + 1)) for s in p.sizes}
        inputs = inputs_of(p, sizes, rng)
        try:
            interpret(p, inputs, sizes)
        except TCError:
            continue
        for kernel in (loops, mapped):
            found = compared(kernel, inputs, sizes)
            unrun, known = unrun + found[0], known + found[1]
    if all(t.dtype.is_float for t in p.inputs):  # where data say what runs, less is known
        assert known >= 0.85 * unrun


CONV = """
def conv(float(N,C,H,W) I, float(M,C,KH,KW) F) -> (O) {
  O(n,m,h,w) +=! I(n,c,h+kh,w+kw) * F(m,c,kh,kw)
}"""


def test_nothing_runs_of_what_is_left_to_another_kernel() -> None:
    p = program("column_sum")
    kernel = schedule_program(p, Options(), {}).kernel
    name = p.sizes[0]
    left = replace(kernel, left_out=ge(var(name), 8))
    n_lines = len(kernel_text(left).splitlines())
    body = set(range(n_lines - n_body_lines(kernel.body), n_lines))
    assert idle_lines(left, {name: 8}, n_lines) == body
    assert not idle_lines(left, {name: 7}, n_lines)


def test_without_sizes_all_may_run() -> None:
    kernel = map_cpu(schedule_program(program("mlp"), Options(), {}).kernel, AVX2, Options()).kernel
    assert not idle_lines(kernel, {}, len(kernel_text(kernel).splitlines()))
