# SPDX-License-Identifier: Apache-2.0
"""Windows without weights: what is done in two parts, and what is not."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.ir.loops import Kernel, Loop, Read, Store, Update
from tcsym.ir.text import node_text
from tcsym.ir.traverse import loads, walk
from tcsym.options import Options
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.combine.separable_windows import separate_windows
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.storage.place_allocations import without_allocations
from tcsym.schedule.storage.privatise import privatise
from tests.schedule.targets import AVX2, SCALAR

POOL = """def f(float(N,C,H,W) I) -> (O) {{
  O(n,c,h,w) {op} {value} where kh in 0:{kh}, kw in 0:{kw}
}}"""


THREES = {"value": "I(n,c,2*h+kh,2*w+kw)", "op": "max=!", "kh": 3, "kw": 3}


def naive(source: str) -> Kernel:
    kernel = schedule_program(analyse(source)["f"], Options(), {}).kernel
    kernel = Kernel(
        kernel.name,
        kernel.sizes,
        kernel.arguments,
        kernel.buffers,
        without_allocations(kernel.body),
    )
    return privatise(accumulate_privately(kernel, Names.of(kernel)))


def pool(value: str, op: str = "max=!", kh: int = 3, kw: int = 3) -> Kernel:
    return naive(POOL.format(value=value, op=op, kh=kh, kw=kw))


def separated(kernel: Kernel) -> Kernel | None:
    nest = next(x.variable for x, _ in walk(kernel.body) if isinstance(x, Loop))
    found = separate_windows(kernel, nest, Setting(SCALAR, Options(), Names.of(kernel), []))
    return found and found.kernel


def reductions(kernel: Kernel) -> list[str]:
    """The loops around each update that is left, and what it reads."""
    out = []
    for x, around in walk(kernel.body):
        if isinstance(x, Update):
            loops = [y.variable for y in around if y.order == "reduction"]
            out.append(f"{' '.join(loops)}: {' '.join(r.tensor for r in loads(x.value))}")
    return out


def test_short_sides_are_expressions_of_neighbours() -> None:
    kernel = separated(pool("I(n,c,2*h+kh,2*w+kw)"))
    assert kernel is not None and not reductions(kernel)
    text = node_text(kernel.body)
    assert text.count("max(max(I[") == 1 and text.count("max(max(O_acc_side.1[") == 1
    side = kernel.buffer("O_acc_side.1")
    assert len(side.shape) == 2  # rows of a block, elements of a row


def test_long_sides_are_loops() -> None:
    kernel = separated(pool("I(n,c,h+kh,w+kw)", "+=!", 31, 33))
    assert kernel is not None
    assert reductions(kernel) == ["kh: I", "kw: O_acc_side.1"]


def test_few_terms_are_one_expression() -> None:
    """Windows of four points that share nothing: no rows in between."""
    kernel = separated(pool("I(n,c,2*h+kh,2*w+kw)", "min=!", 2, 2))
    assert kernel is not None and not reductions(kernel)
    assert not any(b.name.startswith("O_acc_side") for b in kernel.buffers)


@pytest.mark.parametrize(
    "value",
    [
        "I(n,c,h+kh,w+kw) + I(n,c,h,kw)",  # the other operand moves with the window alone
        "I(n,c,h+kh,w+kw) + I(n,c,h+kh,w+2*kw)",  # two ways to walk the row
        "I(n,c,h+kh,w+kw) * kw",  # weights
        "I(n,c,h+kh,w+kh)",  # one side only
        "I(n,c,h+kh,20*w+kw)",  # most columns are in no window
        "I(n,c,h+kw,w+kw) + I(n,c,h+kh,w)",  # a diagonal
    ],
)
def test_other_sums_stay_as_they_are(value: str) -> None:
    assert separated(pool(value)) is None


def test_weights_are_not_separable() -> None:
    kernel = naive(
        "def f(float(N,C,H,W) I, float(3,3) K) -> (O) {"
        " O(n,c,h,w) max=! I(n,c,h+kh,w+kw) + K(kh,kw) }"
    )
    assert separated(kernel) is None


def test_pooling_has_its_own_schedule() -> None:
    kernel = schedule_program(
        analyse(POOL.format(**THREES))["f"],
        Options(),
        {},
    ).kernel
    mapped = map_cpu(kernel, AVX2, Options())
    assert any(note.endswith("windows in two parts") for note in mapped.notes)
    stores = [x for x, _ in walk(mapped.kernel.body) if isinstance(x, Store | Update)]
    reads = [r for x in stores for r in loads(x.value)]
    assert all(isinstance(r, Read) for r in reads)
