"""Long sums in blocks: panels of a block, as many parts as fit, and the same results."""

from __future__ import annotations

from math import prod
from unittest.mock import patch

import pytest

from tcsym.index_values import evaluate
from tcsym.loop_ir import THREADS, Kernel, Loop, walk
from tcsym.options import Options
from tcsym.polyhedral.map_cpu import map_cpu
from tcsym.polyhedral.passes.common.access import accesses
from tcsym.polyhedral.passes.contraction import split_depth
from tcsym.polyhedral.passes.contraction.split_depth import BLOCK_TERMS, PARTS_BYTES
from tests.polyhedral.passes import naive
from tests.polyhedral.passes.compare import assert_same
from tests.polyhedral.passes.targets import AVX2

SMALL = {
    "LONG_TERMS": 8,
    "BLOCK_TERMS": 4,
    "WHOLE_STEPS": 1,
    "LEAST_ELEMENTS": 1,
}


def mapped(k: Kernel) -> Kernel:
    return map_cpu(k, AVX2, Options()).kernel


def rounds_of(k: Kernel) -> Loop:
    (found,) = [x for x, _ in walk(k.body) if isinstance(x, Loop) and x.order == "sequential"]
    return found


def elements(k: Kernel, name: str, sizes: dict[str, int]) -> int:
    return prod(evaluate(e, sizes | {THREADS: 2}) for e in k.buffer(name).shape)


@pytest.mark.parametrize("parts_bytes", [16, 4096])
@pytest.mark.parametrize("sizes", [(5, 6, 8), (7, 3, 9), (9, 17, 41), (4, 5, 0), (2, 2, 7)])
def test_results_are_kept(parts_bytes: int, sizes: tuple[int, ...]) -> None:
    k = naive.matmul("KM", "KN")
    with patch.multiple(split_depth, **SMALL, PARTS_BYTES=parts_bytes):
        out = mapped(k)
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


@pytest.mark.parametrize("a,b", [("MK", "KN"), ("MK", "NK"), ("KM", "NK")])
def test_sums_along_memory_have_no_version_of_their_own(a: str, b: str) -> None:
    k = mapped(naive.matmul(a, b))
    assert not any(isinstance(x, Loop) and x.order == "sequential" for x, _ in walk(k.body))
