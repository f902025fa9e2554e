# SPDX-License-Identifier: Apache-2.0
"""Values of elements that lie across the store: blocks of them are transposed before."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.index.values import holds
from tcsym.ir.loops import Allocate, Branch, Kernel, Loop, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.target.machine import Machine
from tests.guarded import guarded
from tests.schedule.targets import AVX2, AVX512, SCALAR

SOURCES = {
    "shorter": "def f(float(M,N) X) -> (half(N,M) Y) { Y(i,j) = half(X(j,i)) }",
    "longer": "def f(uint8(M,N) X) -> (double(N,M) Y) { Y(i,j) = double(X(j,i)) }",
    "bytes": "def f(uint8(M,N) X) -> (Y) { Y(i,j) = X(j,i) + uint8(1) }",
    "images": """def f(uint8(M,N,C) X, float(C) S, float(C) B) -> (float(C,M,N) Y) {
      Y(c,y,x) = float(X(y,x,c)) * S(c) + B(c)
    }""",
    "back": """def f(float(C,M,N) X, float(C) S) -> (uint8(M,N,C) Y) {
      Y(y,x,c) = uint8(X(c,y,x) * S(c))
    }""",
    "two": "def f(float(M,N) X, float(M,N) Z) -> (Y) { Y(i,j) = X(j,i) + 2 * Z(j,i) }",
    "mixed": "def f(float(M,N) X, float(N,M) Z) -> (Y) { Y(i,j) = X(j,i) * X(j,i) + Z(i,j) }",
    "part": "def f(half(M,N) X) -> (Y) { Y(i,j) = float(X(j,i+3)) where i in 0:N-3 }",
    "chosen": "def f(float(M,N) X) -> (Y) { Y(i,j) = j > i ? X(j,i) : X(j,i) + 1 }",
}


def mapped(source: str, target: Machine = AVX512) -> Kernel:
    return map_cpu(
        schedule_program(analyse(source)["f"], Options(), {}).kernel, target, Options()
    ).kernel


def panels(k: Kernel) -> list[TransposeBlock]:
    found = [x for x, _ in walk(k.body) if isinstance(x, TransposeBlock)]
    return [x for x in found if k.buffer(x.target).space == "stack"]


@pytest.mark.parametrize("name", ["shorter", "longer", "images", "back", "mixed", "part"])
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda t: t.name)
def test_one_block_is_moved_for_each_of_values(name: str, target: Machine) -> None:
    k = mapped(SOURCES[name], target)
    (block,) = panels(k)
    bits = k.buffer(block.source).dtype.bits
    assert block.source == "X"
    assert block.block == target.block_lanes(bits)


def test_each_operand_across_has_a_block() -> None:
    assert {x.source for x in panels(mapped(SOURCES["two"]))} == {"X", "Z"}


def test_short_arithmetic_moves_blocks_side_by_side() -> None:
    """All lanes of a vector."""
    (block,) = panels(mapped(SOURCES["bytes"]))
    assert (block.block, block.height) == (16, 64)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (SOURCES["images"], SCALAR),
        ("def f(float(M,N) X) -> (Y) { Y(i,j) = float(X(j,i)) }", AVX512),  # converts nothing
        ("def f(float(M,N) X) -> (Y) { Y(i,j) = j > i ? X(j,i) : 0 }", AVX512),  # not always read
        ("def f(float(M,8) X) -> (half(8,M) Y) { Y(i,j) = half(X(j,i)) }", AVX512),  # less than one
    ],
)
def test_what_stays(source: str, target: Machine) -> None:
    assert panels(mapped(source, target)) == []


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
def test_results(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    m, random = tcsym.define(SOURCES[name], target=target), np.random.default_rng(0)
    for rows, columns, c in ((0, 5, 3), (3, 16, 16), (16, 16, 3), (70, 33, 1), (17, 150, 18)):
        sizes = {"M": rows, "N": max(columns, 4), "C": c}
        values = [
            guarded(random.integers(0, 9, [sizes[str(e)] for e in x.shape]).astype(x.dtype.numpy))
            for x in m.signature.inputs.values()
        ]
        np.testing.assert_array_equal(m(*values), m.reference(*values))


def test_each_iteration_of_a_loop_around_has_its_own_block() -> None:
    """Nests that share a parallel loop; on two threads its iterations would overwrite one block."""
    k = mapped(
        """def f(float(A,B,C) X) -> (P, Q) {
          P(a,c,b) = X(a,b,c) + 1
          Q(a,b,c) = P(a,c,b) - X(a,b,c)
        }""",
        AVX2,
    )
    blocks = [k.buffer(x.target) for x in panels(k)]
    assert [b.name for b in blocks] == ["X_block.1", "P_block.1"]
    assert all("a" in b.private for b in blocks)
    loops = [x for x, _ in walk(k.body) if isinstance(x, Loop) and x.kind == "parallel"]
    allocations = [x for y in loops for x, _ in walk(y.body) if isinstance(x, Allocate)]
    owned = {b for x in allocations for b in x.buffers}
    assert owned == {"X_block.1", "P_block.1"}


def test_few_channels_are_scattered_sooner_than_rows_of_them_gathered() -> None:
    short = next(x for x, _ in walk(mapped(SOURCES["back"]).body) if isinstance(x, Branch))
    assert holds(short.condition, {"C": 8, "M": 16, "N": 16})
    assert not holds(short.condition, {"C": 16, "M": 16, "N": 16})
