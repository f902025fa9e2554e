# SPDX-License-Identifier: Apache-2.0
"""Long sums in blocks: panels of a block, as many parts as fit, and the same results."""

from __future__ import annotations

from math import prod
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tcsym.index.expr import FALSE
from tcsym.index.values import evaluate, holds
from tcsym.ir.loops import THREADS, Kernel, Loop
from tcsym.ir.text import kernel_text
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.combine import split_k as split_k
from tcsym.schedule.combine.split_k import BLOCK_TERMS, PARTS_BYTES
from tcsym.schedule.map_cpu import map_cpu
from tcsym.sizes.context import Known
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX2

SMALL = {
    "FEW_TERMS": 8,
    "BLOCK_TERMS": 4,
    "WHOLE_STEPS": 1,
    "LEAST_ELEMENTS": 1,
}
LAYOUTS = [("KM", "KN"), ("MK", "KN"), ("MK", "NK"), ("KM", "NK")]


def mapped(k: Kernel, whole: bool = True) -> Kernel:
    return map_cpu(k, AVX2, Options(), whole).kernel


def are_in_blocks(k: Kernel, whole: bool = True) -> bool:
    notes = map_cpu(k, AVX2, Options(), whole).notes
    return any("long sums in blocks" in note for note in notes)


def rounds_of(k: Kernel) -> Loop:
    loops = [x for x, _ in walk(k.body) if isinstance(x, Loop) and x.order == "sequential"]
    (found,) = [x for x in loops if any("parts" in a.buffer for a in accesses(x))]
    return found


def elements(k: Kernel, name: str, sizes: dict[str, int]) -> int:
    return prod(evaluate(e, sizes | {THREADS: 2}) for e in k.buffer(name).shape)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts_bytes", [16, 4096])
def test_results_are_kept(parts_bytes: int, layout: tuple[str, str]) -> None:
    k = naive.matmul(*layout)
    with patch.multiple(split_k, **SMALL, PARTS_BYTES=parts_bytes):
        out = mapped(k)
    for sizes in ((5, 6, 8), (7, 3, 9), (9, 17, 41), (4, 5, 0), (2, 2, 7)):
        assert_same(k, out, dict(zip("MNK", sizes)))


@pytest.mark.parametrize("rows", [64, 500, 2000])
def test_panels_hold_a_block_and_parts_fit(rows: int) -> None:
    k = mapped(naive.matmul("KM", "KN"))
    sizes = {"M": rows, "N": 50, "K": 10**6}
    used = {x.buffer for x in accesses(rounds_of(k))}
    panels = [x for x in used if "panel" in x]
    parts = [x for x in used if "parts" in x]
    assert panels and len(parts) == 1
    for x in panels:
        assert elements(k, x, sizes) <= (BLOCK_TERMS + 16) * (rows + 32) * 2
    assert 4 * elements(k, parts[0], sizes) <= PARTS_BYTES
    wide = {"M": 2000, "N": 2000, "K": 10**6}
    assert elements(k, parts[0], wide) == 2000 * 2000


def test_the_number_of_parts_does_not_know_threads() -> None:
    k = mapped(naive.matmul("KM", "KN"))
    (parts,) = {x.buffer for x in accesses(rounds_of(k)) if "parts" in x.buffer}
    assert THREADS not in {v for e in k.buffer(parts).shape for v in e.variables()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_long_sums_are_left_out_unless_the_kernel_is_to_be_whole(layout: tuple[str, str]) -> None:
    k = naive.matmul(*layout)
    whole, most = mapped(k), mapped(k, whole=False)
    assert are_in_blocks(k) and whole.left_out == FALSE
    assert not are_in_blocks(k, whole=False)
    assert "left to another: " in kernel_text(most)

    def is_left(m: int, n: int, k: int) -> bool:
        return holds(most.left_out, {"M": m, "N": n, "K": k})

    assert is_left(16, 16, 1024)
    assert not is_left(16, 16, 1023)
    assert not is_left(15, 16, 1024)
    assert not is_left(16, 15, 5000)
    assert not is_left(64, 65, 4096)
    assert is_left(64, 65, 4097)
    assert is_left(1000, 625, 5000)
    assert not is_left(1000, 626, 5000)


def test_known_sizes_decide() -> None:
    sizes = {"M": 40, "N": 50, "K": 5000}
    k = naive.matmul()
    long = replace(k, context=tuple(Known(n, x, x) for n, x in sizes.items()))
    assert are_in_blocks(long, whole=False) and mapped(long, whole=False).left_out == FALSE
    short = replace(k, context=(Known("K", 2, 1000), Known("N", 2, None)))
    assert not are_in_blocks(short) and mapped(short, whole=False).left_out == FALSE
