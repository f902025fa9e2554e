# SPDX-License-Identifier: Apache-2.0
"""Windows without weights: what is done in two parts, and what is not."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.index.values import evaluate, holds
from tcsym.ir.loops import THREADS, Branch, Kernel, Loop, Node, Prefetch, Read, Store, Update
from tcsym.ir.text import node_text
from tcsym.ir.traverse import loads, walk
from tcsym.options import Options
from tcsym.schedule.analysis.loops import children
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


def test_symbolic_windows_have_a_version_for_3() -> None:
    source = """def f(float(N,C,H,W) I, float(KH,KW) Z) -> (O) {
  O(n,c,h,w) +=! I(n,c,h+kh,w+kw) where kh in 0:KH, kw in 0:KW
}"""
    kernel = separated(naive(source))
    assert kernel is not None
    assert reductions(kernel) == ["kh: I", "kw: O_acc_side.1"]
    assert "if KH == 3 && KW == 3" in node_text(kernel.body)


def test_windows_far_apart_have_no_version_for_3() -> None:
    """Which would use few of the columns that it passes, and stays whole."""
    source = """def f(float(N,M) A, float(K) Z) -> (O) {
  O(y,x) max=! A(2*y+a,8*x+b) where a in 0:2, b in 0:K, exists Z(b)
}"""
    kernel = separated(naive(source))
    assert kernel is not None
    assert reductions(kernel) == ["b: O_acc_side.1"]
    assert "K == 3" not in node_text(kernel.body)


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


def test_blocks_of_many_long_rows_are_all_alike() -> None:
    """Pairs of rows of five loads, then rows, with or without fetches; nothing is masked."""
    kernel = schedule_program(analyse(POOL.format(**THREES))["f"], Options(), {}).kernel
    mapped = map_cpu(kernel, AVX2, Options()).kernel
    few = next(x for x, _ in walk(mapped.body) if isinstance(x, Branch))
    image = {"N": 1, "C": 8, "H": 9, THREADS: 1}
    assert holds(few.condition, {**image, "W": 13})
    assert not holds(few.condition, {**image, "W": 15})
    assert few.orelse is not None
    branch = next(x for x, _ in walk(few.orelse) if isinstance(x, Branch))
    some = {"N": 1, "C": 1}
    assert holds(branch.condition, {**some, "H": 9, "W": 17})
    assert not holds(branch.condition, {**some, "H": 8, "W": 17})
    assert not holds(branch.condition, {**some, "H": 9, "W": 16})
    loops = [x for x, _ in walk(branch.then) if isinstance(x, Loop)]
    vectors = [x for x in loops if x.kind == "vector"]
    assert len(vectors) == 3 and all(x.mask is None for x in vectors)
    assert len({r for x in children(vectors[0].body) for r in loads(x.value)}) == 5  # type: ignore[union-attr]
    assert [x.upper.as_int() for x in loops if x.variable.startswith("h.")][1:] == [2, 4, 4]


def test_a_block_fetches_the_rows_that_only_the_next_one_reads() -> None:
    """Four rows of windows read rows 0 to 8 of the image; the next four read up to row 16."""
    kernel = schedule_program(analyse(POOL.format(**THREES))["f"], Options(), {}).kernel
    mapped = map_cpu(kernel, AVX2, Options()).kernel
    fetching = [x for x, _ in walk(mapped.body) if isinstance(x, Branch) and fetches(x)]
    far = fetching[-1]  # the innermost
    assert holds(far.condition, {"N": 1, "C": 8, "H": 256, "W": 256})
    assert not holds(far.condition, {"N": 1, "C": 7, "H": 256, "W": 256})
    rows = set()
    for x, around in walk(far.then):
        if isinstance(x, Prefetch):
            row, column = (y.variable for y in around if isinstance(y, Loop))
            others = {v: 0 for s in x.read.subscripts for v in s.variables()}
            found = [[evaluate(s, {**others, row: r}) for s in x.read.subscripts] for r in range(4)]
            assert column in x.read.subscripts[2].variables() and all(f[2] == 0 for f in found)
            rows |= {f[1] for f in found}
    assert rows == set(range(9, 17)) and len(fetches(far)) == 2


def fetches(node: Node) -> list[Prefetch]:
    return [x for x, _ in walk(node) if isinstance(x, Prefetch)]


@pytest.mark.parametrize("value", ["I(n,c,h+kh,w+kw)", "I(n,c,2*h+kh,2*w+kw) * 0 + n"])
def test_only_whole_lines_of_one_image_are_fetched(value: str) -> None:
    """Windows that move by one read half a line at a time."""
    kernel = schedule_program(analyse(POOL.format(**THREES | {"value": value}))["f"], Options(), {})
    mapped = map_cpu(kernel.kernel, AVX2, Options()).kernel
    assert len(fetches(mapped.body)) == (2 if "2*h" in value else 0)
