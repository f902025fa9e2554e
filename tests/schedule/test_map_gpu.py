# SPDX-License-Identifier: Apache-2.0
"""Kernels for a device against the interpreter: in plain Python, and as code in its twin."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.index.expr import ZERO, var
from tcsym.ir.device import Barrier, WaitCopies
from tcsym.ir.loops import Kernel, Loop, Node, Update
from tcsym.ir.races import races
from tcsym.ir.traverse import map_node, walk
from tcsym.mapping import tree
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.schedule import map_gpu as module
from tcsym.schedule.chosen import Choice
from tcsym.schedule.device import propose
from tcsym.schedule.device.nest import Nest
from tcsym.schedule.device.plan import (
    BlockRows,
    OnlineRows,
    SharedRows,
    SharedTiles,
    SplitSum,
    ThreadPoints,
    Tiles,
    TurnedTiles,
    Version,
    WarpTiles,
)
from tcsym.schedule.device.scatter import scatter_of
from tcsym.schedule.map_gpu import map_gpu
from tcsym.target.cuda import twin_target
from tcsym.target.machine import Machine
from tests.polyhedral.programs import SOURCES, program
from tests.schedule.naive import rd, up
from tests.schedule.test_map_programs import inputs_of

MACHINE = twin_target().machine
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
MATRICES = MM.replace("float", "float16")
SOFTMAX = tc.library.source("softmax")
CENTRED = """def centred(float(N,D) X) -> (Y) {
  s(n) +=! X(n,d)
  m(n) = s(n) / D
  c(n,d) = X(n,d) - m(n)
  v(n) +=! c(n,d) * c(n,d)
  Y(n,d) = c(n,d) * rsqrt(v(n) / D + 1e-5)
}"""
in_twin = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LARGE", "SMALL"):
        monkeypatch.setattr(propose, name, (16, 16, 4, 2, 2, 2))
        monkeypatch.setattr(propose, f"WARPS_{name}", (16, 16, 16, 3, 16, 8))
    monkeypatch.setattr(propose, "ROW_THREADS", 64)


@pytest.fixture
def first_plans(monkeypatch: pytest.MonkeyPatch, small_blocks: None) -> None:
    """Small blocks, and the first plan of each nest that is for all sizes and addresses."""

    def first(nest: Nest, machine: Machine, *_: object) -> tuple[Version, ...]:
        found = propose.offered(nest, machine)
        plans = [v.plan for v in found if not isinstance(v.plan, SplitSum)]
        return (Version(next(p for p in plans if not isinstance(p, Tiles) or p.copied == 4)),)

    monkeypatch.setattr(module, "versions", first)


@pytest.fixture
def wide_plans(monkeypatch: pytest.MonkeyPatch, small_blocks: None) -> None:
    """Small blocks, whose copies move 16 bytes where they may, at all sizes for which they may."""

    def wide(nest: Nest, machine: Machine, *_: object) -> tuple[Version, ...]:
        found = propose.offered(nest, machine)
        first = next(v for v in found if not isinstance(v.plan, SplitSum))
        return (first, found[-1])

    monkeypatch.setattr(module, "versions", wide)


def check(name: str) -> None:
    p = program(name)
    kernel = tc.define(p.source, target="cuda:twin", strategy="symbolic")[p.name]
    rng = np.random.default_rng(len(name))
    for most in (1, 4, 40):
        sizes = {s: int(rng.integers(1, most + 1)) for s in p.sizes}
        inputs = inputs_of(p, sizes, rng)
        try:
            want = interpret(p, inputs, sizes)
        except TCError:
            continue
        got = kernel(**inputs, sizes=sizes)
        for tensor, x in zip(want, got if isinstance(got, tuple) else (got,), strict=True):
            found = np.asarray(x, np.float64)
            np.testing.assert_allclose(found, np.asarray(want[tensor], np.float64), 1e-2, 1e-2)


@pytest.mark.thinned(4)
@in_twin
@pytest.mark.parametrize("name", [*SOURCES][1:] + [*SOURCES][:1])
def test_mapped_program_agrees_with_the_interpreter(name: str) -> None:
    check(name)


@in_twin
@pytest.mark.parametrize("name", ["matmul_bias_relu", "softmax", "attention", "conv_bias_relu"])
def test_first_plans_agree_with_the_interpreter(name: str, first_plans: None) -> None:
    check(name)


def mapped(text: str) -> Kernel:
    (p,) = analyse(text).values()
    return map_gpu(schedule_program(p, Options(), {}).kernel, MACHINE).kernel


def test_sums_of_steps_in_order_are_in_registers() -> None:
    """Whose tiles have points beyond the edges: in memory, these would lie beside the sums."""
    kernel = mapped("""def f(float(N,M,M) A, float(M,M) B) -> (float(N+1,M,M) S) {
      S(0,i,j) = B(i,j)
      for t in N {
        P(i,j) +=! A(t,i,k) * B(k,j)
        S(t+1,i,j) = P(i,j) * S(t,i,j)
      }
    }""")
    sums = {x.buffer for x, _ in walk(kernel.body) if isinstance(x, Update)}
    assert {kernel.buffer(b).space for b in sums} == {"register"}


TURNED = "def f(float(N,M) X, float(M) b) -> (Y) { Y(i,j) = X(j,i) * b(i) }"


@pytest.mark.parametrize("text", [MM, MATRICES, SOFTMAX, TURNED])
def test_threads_are_proved_not_to_race(text: str) -> None:
    assert list(races(mapped(text))) == []


def test_threads_of_a_window_are_proved_not_to_race(first_plans: None) -> None:
    assert list(races(mapped(tc.library.source("conv2d")))) == []


@pytest.mark.parametrize("dropped", [Barrier, WaitCopies])
def test_what_orders_threads_of_tiles_is_needed(dropped: type[Node], first_plans: None) -> None:
    kernel = mapped(MM)
    body = map_node(kernel.body, lambda n: None if isinstance(n, dropped) else n)
    assert list(races(replace(kernel, body=body))) != []


@in_twin
@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 5, 33), (64, 40, 70), (130, 16, 129), (3, 0, 2)])
def test_matmul_in_the_twin(sizes: tuple[int, int, int], first_plans: None) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n)))
    np.testing.assert_array_equal(tc.define(MM, target="cuda:twin")(a, b), a @ b)


@in_twin
@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 5, 33), (64, 40, 70), (33, 16, 17), (3, 0, 2)])
def test_products_of_matrices_in_the_twin(sizes: tuple[int, int, int], first_plans: None) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (k, n)))
    np.testing.assert_array_equal(tc.define(MATRICES, target="cuda:twin")(a, b), a @ b)


@in_twin
def test_greatest_products_have_no_zeros_from_beyond_the_edges(first_plans: None) -> None:
    text = "def f(int32(M,K) A, int32(K,N) B) -> (C) { C(m,n) max=! A(m,k) * B(k,n) }"
    a, b = -np.ones((17, 5), np.int32), np.ones((5, 33), np.int32)
    np.testing.assert_array_equal(tc.define(text, target="cuda:twin")(a, b), -1)


@in_twin
def test_float32_loses_bits_only_where_asked(first_plans: None) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((40, 33), (33, 25)))
    exact = tc.define(MM, target="cuda:twin")
    np.testing.assert_allclose(exact(a, b), a @ b, 1e-4, 1e-5)
    short = tc.define(MM, target="cuda:twin", options=tc.Options(tf32=True))
    assert "a warp" in short.explain("plan") and "a warp" not in exact.explain("plan")
    left, right = (((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for x in (a, b))
    np.testing.assert_allclose(short(a, b), left @ right, 1e-4, 1e-5)
    assert np.abs(short(a, b) - a @ b).max() > 1e-3


@in_twin
def test_float32_is_rounded_without_a_bias(first_plans: None) -> None:
    """Of factors that are cut off, a sum of positive terms is too small by their number."""
    rng = np.random.default_rng(0)
    a, b = (rng.random(s, dtype=np.float32) for s in ((16, 512), (512, 16)))
    exact = a.astype(np.float64) @ b
    found = tc.define(MM, target="cuda:twin", options=tc.Options(tf32=True))(a, b)
    assert np.linalg.norm(found - exact) < 5e-5 * np.linalg.norm(exact)  # 6.5e-4 if cut off
    special = np.array([[np.inf], [-np.inf], [np.nan], [3.4e38]], np.float32)
    found = tc.define(MM, target="cuda:twin", options=tc.Options(tf32=True))(
        special, special[3:] / 3.4e38
    )
    np.testing.assert_allclose(found, special, 1e-3)


@in_twin
@pytest.mark.parametrize("text", [MM, MATRICES])
def test_wide_copies_in_the_twin(text: str, wide_plans: None) -> None:
    kernel = tc.define(text, target="cuda:twin")
    assert "copy 4 " in kernel.explain("mapped") or "copy 8 " in kernel.explain("mapped")
    dtype, rng = np.float32 if text == MM else np.float16, np.random.default_rng(0)
    for m, k, n in ((5, 8, 24), (40, 48, 16), (7, 9, 24)):
        a, b = (rng.integers(-4, 5, s).astype(dtype) for s in ((m, k), (k, n)))
        np.testing.assert_array_equal(kernel(a, b), a @ b)


@in_twin
@pytest.mark.parametrize("text", [MM, MATRICES])
def test_sums_in_parts_in_the_twin(
    text: str, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    def split(nest: Nest, machine: Machine, *_: object) -> tuple[Version, ...]:
        found = propose.offered(nest, machine)
        plans = [v.plan for v in found if not v.is_extra]
        return (Version([p for p in plans if isinstance(p, SplitSum)][-1]),)

    monkeypatch.setattr(module, "versions", split)
    assert list(races(mapped(text))) == []
    kernel, rng = tc.define(text, target="cuda:twin"), np.random.default_rng(0)
    dtype = np.float32 if text == MM else np.float16
    for m, k, n in ((1, 1, 1), (17, 300, 20), (3, 0, 2), (40, 513, 5)):
        a, b = (rng.integers(-2, 3, s).astype(dtype) for s in ((m, k), (k, n)))
        np.testing.assert_array_equal(kernel(a, b), a @ b)


@in_twin
def test_maps_of_four_points_in_the_twin(wide_plans: None) -> None:
    text = "def f(float(N,M) X, float(M) b) -> (Y) { Y(i,j) = X(i,j) + b(j) }"
    kernel = tc.define(text, target="cuda:twin")
    assert "a thread for each 4 neighbours of i.1, j.1" in kernel.explain("plan")
    for n, m in ((1, 4), (9, 36), (3, 7)):
        x, b = np.ones((n, m), np.float32), np.arange(m, dtype=np.float32)
        np.testing.assert_array_equal(kernel(x, b), x + b)


@in_twin
@pytest.mark.parametrize("sizes", [(1, 1), (5, 300), (70, 33), (2, 1100)])
def test_rows_in_the_twin(sizes: tuple[int, int]) -> None:
    kernel = tc.define(SOFTMAX, target="cuda:twin")
    x = np.random.default_rng(1).standard_normal(sizes, dtype=np.float32)
    np.testing.assert_allclose(kernel(x), kernel.reference(x), 1e-5)


@in_twin
def test_sums_of_rows_that_warps_share_are_in_registers() -> None:
    """A loop of its own is each warp's row's: what is private to it is private there, too."""
    text = """def mean_bag(int32(J) id, int32(P) off, float(V,D) T) -> (Y) {
      c(b) = max(off(b+1) - off(b), 1)
      Y(b,d) +=! T(id(j),d) where j in off(b):off(b+1)
      Y(b,d) = Y(b,d) / float(c(b))
    }"""
    kernel, rng = tc.define(text, target="cuda:twin"), np.random.default_rng(0)
    off = np.array([0, 3, 3, 11], np.int32)
    x = rng.integers(0, 7, 11, np.int32), off, rng.standard_normal((7, 40), np.float32)
    np.testing.assert_allclose(kernel(*x), kernel.reference(*x), 1e-5)


def uncommon_rows(d: int) -> np.ndarray:
    """Plain ones, and rows that have infinities and NaN, some of them alone."""
    x = np.random.default_rng(d).standard_normal((9, d), dtype=np.float32) * 10
    if d:
        x[1, :] = -np.inf
        x[2, [0, -1]] = -np.inf
        x[3, d // 2] = np.inf
        x[4, d // 3] = np.nan
        x[5, :] = np.inf
        x[6, : d - 1] = -np.inf
        x[7, :-1] = -3e38
        x[7, -1] = 3e38
    return x


@in_twin
@pytest.mark.parametrize(
    "plan", ["OnlineRows", "OnlineRows:32x8", "SharedRows", "BlockRows:256x1x8"]
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "centred"])
def test_long_rows_in_the_twin(
    name: str, plan: str, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    monkeypatch.setenv("TCSYM_CHECK_TWIN", "1")
    monkeypatch.setenv("TCSYM_CACHE", "0")
    text = CENTRED if name == "centred" else tc.library.source(name)
    kernel = tc.define(text, target="cuda:twin", options=Options(plan=plan))[name]
    assert f"plan={plan}" in kernel.explain("plan")
    for d in (0, 1, 2, 33, 300, 1100):
        x = uncommon_rows(d)
        np.testing.assert_allclose(kernel(x), kernel.reference(x), 2e-5, 1e-6, err_msg=str(d))


@in_twin
def test_squares_beside_a_running_mean_lose_nothing_to_a_large_mean() -> None:
    options = Options(plan="OnlineRows:128x1")
    kernel = tc.define(CENTRED, target="cuda:twin", options=options).centred
    x = (np.random.default_rng(0).standard_normal((2, 1000)) + 1000).astype(np.float32)
    exact = x - x.mean(1, keepdims=True, dtype=np.float64)
    exact /= np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(kernel(x), exact, 1e-3, 2e-4)


SQUARES = """def f(float(N,D) X, float(D) w) -> (float(N,D) Y) {{
  s(n) +=! X(n,d)
  m(n) = s(n) / D
  {}
}}"""


@pytest.mark.parametrize(
    ("rest", "is_online"),
    [
        ("v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n))  Y(n,d) = X(n,d) / v(n)", True),
        ("c(n,d) = X(n,d) - m(n)  v(n) +=! c(n,d) * c(n,d)  Y(n,d) = c(n,d) / v(n)", True),
        # another power, another row, a difference that is itself a result
        ("v(n) +=! X(n,d) - m(n)  Y(n,d) = X(n,d) / v(n)", False),
        ("v(n) +=! (w(d) - m(n)) * (w(d) - m(n))  Y(n,d) = X(n,d) / v(n)", False),
        ("Y(n,d) = X(n,d) - m(n)  v(n) +=! Y(n,d) * Y(n,d)", False),
    ],
)
def test_sums_of_squares_are_made_beside_their_mean(rest: str, is_online: bool) -> None:
    assert offers_online(SQUARES.format(rest)) == is_online


EXPONENTIALS = """def f(float(N,D) X, float(D) w) -> (float(N,D) Y, float(N) S) {{
  m(n) max=! X(n,d)
  {}
}}"""


@pytest.mark.parametrize(
    ("rest", "is_online"),
    [
        ("Y(n,d) = exp(X(n,d) - m(n))  S(n) +=! Y(n,d)  Y(n,d) = Y(n,d) / S(n)", True),
        ("S(n) +=! exp(X(n,d) - m(n))  Y(n,d) = X(n,d) - m(n) - log(S(n))", True),
        # an exponential that is itself a result; one that stands with a factor, or for another row
        ("Y(n,d) = exp(X(n,d) - m(n))  S(n) +=! Y(n,d)", False),
        ("S(n) +=! exp(X(n,d) - m(n)) * w(d)  Y(n,d) = X(n,d) - m(n) - log(S(n))", False),
        ("S(n) +=! exp(w(d) - m(n))  Y(n,d) = X(n,d) - m(n) - log(S(n))", False),
        ("S(n) max=! exp(X(n,d) - m(n))  Y(n,d) = X(n,d) - m(n) - log(S(n))", False),
    ],
)
def test_sums_of_exponentials_are_made_beside_their_maximum(rest: str, is_online: bool) -> None:
    assert offers_online(EXPONENTIALS.format(rest)) == is_online


def offers_online(text: str) -> bool:
    (p,) = analyse(text).values()
    choices = map_gpu(schedule_program(p, Options(), {}).kernel, MACHINE, tells_all=True).choices
    offered = [name for x in choices if isinstance(x, Choice) for name, _ in x.offered]
    return any(name.startswith("OnlineRows") for name in offered)


def test_what_is_used_up_leaves_its_place_in_shared_memory() -> None:
    (p,) = analyse(SOFTMAX).values()
    kernel = schedule_program(p, Options(), {}).kernel
    found = map_gpu(kernel, MACHINE, Options(plan="SharedRows")).kernel
    rows = {b.name.partition("_row")[0] for b in found.buffers if "_row" in b.name}
    assert rows == {"X"}  # that of Y, too
    assert list(races(found)) == []


def test_plans_follow_from_what_a_nest_is() -> None:
    def plans(text: str) -> list[type]:
        (p,) = analyse(text).values()
        kernel = schedule_program(p, Options(), {}).kernel
        (choice,) = map_gpu(kernel, MACHINE).choices
        return [type(x.plan) for x in choice.versions]  # type: ignore[union-attr]

    rest = [*[BlockRows] * 3, ThreadPoints]
    assert plans(MM) == [SplitSum] * 2 + [SharedTiles] * 4 + rest
    assert plans(MATRICES) == [SplitSum] * 2 + [WarpTiles] * 4 + rest
    held = [BlockRows] * 3 + [SharedRows] * 2
    assert plans(SOFTMAX) == held + [OnlineRows] * 3 + [ThreadPoints]
    assert plans(tc.library.source("layer_norm")) == held + [OnlineRows] * 3 + [ThreadPoints]
    assert plans("def f(float(N,M) X) -> (Y) { Y(i,j) = X(i,j) + 1 }") == [ThreadPoints] * 2
    turned = "def f(float(N,M) X) -> (Y) { Y(i,j) = X(j,i) + 1 }"
    assert plans(turned) == [TurnedTiles, ThreadPoints]
    bag = "def f(int32(P) o, float(J,D) E) -> (Y) { Y(b,d) +=! E(j,d) where j in o(b):o(b+1) }"
    assert plans(bag) == [ThreadPoints]
    assert plans(bag.replace(",D", "").replace(",d", "")) == rest
    gathered = "def f(float(V,D) T, int32(N) I) -> (Y) { Y(n,d) = T(I(n),d) }"
    assert plans(gathered) == [ThreadPoints]


def statements(text: str) -> list[Update]:
    return [x for x, _ in walk(mapped(text).body) if isinstance(x, Update)]


@pytest.mark.parametrize(
    ("dtype", "op", "is_atomic"),
    [
        ("int32", "+=!", True),
        ("uint64", "max=!", True),
        ("float", "min=!", True),
        ("float", "+=!", False),
        ("int8", "+=!", False),
        ("int32", "*=!", False),
    ],
)
def test_elements_are_updated_at_once_where_no_order_is_seen(
    dtype: str, op: str, is_atomic: bool
) -> None:
    text = f"def f(int32(N) I, {dtype}(N) X) -> ({dtype}(V) H) {{ H(I(n)) {op} X(n) }}"
    found = statements(text)
    assert any(x.atomic for x in found) == is_atomic
    assert any(x.buffer.startswith("counts") for x in found) != is_atomic


def test_terms_that_read_what_they_update_are_no_scatter() -> None:
    def terms(read: str) -> Loop:
        add = up("H", (var("e"),), "add", rd(read, 0))
        return Loop("n", ZERO, var("N"), Loop("e", ZERO, var("V"), add, at=rd("I", var("n"))))

    assert scatter_of(terms("X")) is not None and scatter_of(terms("H")) is None


@in_twin
def test_gathers_out_of_range_are_errors_in_the_twin() -> None:
    text = "def f(float(V,D) T, int32(N) I) -> (Y) { Y(n,d) = T(I(n),d) }"
    kernel = tc.define(text, target="cuda:twin")
    with pytest.raises(tc.BoundsError, match="`T`"):
        kernel(np.ones((3, 4), np.float32), np.array([0, 3], np.int32))


@in_twin
@pytest.mark.parametrize("plan", ["SharedTiles:64x64x16x2x4x4", "BlockRows:32x8"])
def test_the_last_version_may_be_any(plan: str) -> None:
    """Copies are made of the nest as it was, not of what the version for all other sizes needs."""
    text = """def f(float(A,K) X, float(K,B) Y) -> (float(A,B) S) {
      T(k,j) = Y(k,j)  S(i,j) = 0.0
      for t in 2 { S(i,j) += X(i,k) * T(k,j)  T(k,j) = T(k,j) * 0.5 + Y(k,j) }
    }"""
    kernel = tc.define(text, target="cuda:twin", options=Options(plan=plan)).f
    rng = np.random.default_rng(0)
    for a, k, b in ((3, 5, 40), (20, 32, 16)):  # by narrow copies, then by wide ones
        x, y = rng.standard_normal((a, k), "f"), rng.standard_normal((k, b), "f")
        np.testing.assert_allclose(kernel(x, y), kernel.reference(x, y), 1e-4, 1e-4)


def test_targets_of_devices() -> None:
    assert tc.define(MM, target="cuda:twin").explain("plan").count("a thread for each of m, n") == 1


def test_what_is_too_large_for_a_stack_is_kept_for_all_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that each thread would have for itself lay in an arena, of which a block has none."""
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    monkeypatch.setattr(tree, "STACK_BYTES", 0)
    text = """def f(float(M,65) A) -> (C) {
      T(i,j) = exp(A(i,j))
      S(i) max=! T(i,j)
      U(i,j) = T(i,j) - S(i)
      C(i,v) +=! U(i,j) * A(v,j)
    }"""
    kernel = tc.define(text, target="cuda:twin").f
    x = np.random.default_rng(0).random((5, 65), np.float32)
    np.testing.assert_allclose(kernel(x), kernel.reference(x), rtol=1e-5)


@in_twin
def test_no_copy_is_longer_than_a_row_of_its_panel(
    monkeypatch: pytest.MonkeyPatch, wide_plans: None
) -> None:
    """Eight numbers of two bytes at once, for rows of four: all threads copied the first row."""
    monkeypatch.setenv("TCSYM_CHECK_TWIN", "1")
    monkeypatch.setenv("TCSYM_CACHE", "0")
    text = "def f(int16(M,K) A, int16(K,N) B) -> (C) { C(i,j) +=! int32(A(i,k)) * int32(B(k,j)) }"
    kernel = tc.define(text, target="cuda:twin", strategy="symbolic").f
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, n, np.int16) for n in ((32, 24), (24, 16)))
    np.testing.assert_array_equal(kernel(a, b), kernel.reference(a, b))
