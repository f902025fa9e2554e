# SPDX-License-Identifier: Apache-2.0
"""What tiles of a device cost: from facts of its machine, and from where a warp's lanes load."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.frontend.program import Read
from tcsym.index.expr import var
from tcsym.index.values import evaluate, holds
from tcsym.ir.loops import Branch
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.device import propose, staged
from tcsym.schedule.device.cost import tile_cost, wavefronts
from tcsym.schedule.device.panels import Panel
from tcsym.schedule.device.plan import GridCost, SharedTiles, WarpTiles
from tcsym.schedule.map_gpu import map_gpu
from tcsym.target.cuda import KINDS, machine_of
from tcsym.target.names import resolve_target
from tcsym.types import DType

LOOPS = ("m", "n", "k")
POINTS = SharedTiles(*LOOPS, 128, 128, 16, 2, 16, 8, 8)
FEW_POINTS = SharedTiles(*LOOPS, 64, 64, 16, 2, 16, 4, 4)
WARPS = WarpTiles(*LOOPS, 128, 128, 32, 3, 16, 64, 32)
TF32 = WarpTiles(*LOOPS, 128, 128, 16, 3, 16, 64, 32)
MACHINE = machine_of(KINDS[0])


def operands(dtype: DType) -> tuple[Panel, Panel]:
    a = Panel(Read("A", (var("m"), var("k")), dtype), "m", True)
    return a, Panel(Read("B", (var("k"), var("n")), dtype), "n", False)


@pytest.mark.parametrize("plan", [POINTS, FEW_POINTS, WARPS, TF32])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_tiles_fit_and_their_loads_do_not_conflict(plan, kind) -> None:
    panels = operands(DType.FLOAT16 if plan is WARPS else DType.FLOAT32)
    assert tile_cost(plan, panels, machine_of(kind)).resident >= 1
    assert [wavefronts(plan, p) for p in panels] == [1, 1]


def test_rows_of_panels_without_padding_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "PADDING", 0)
    wavefronts.cache_clear()
    assert [wavefronts(WARPS, p) for p in operands(DType.FLOAT16)] == [4, 8]
    wavefronts.cache_clear()


def test_what_does_not_fit_holds_no_block() -> None:
    many = replace(POINTS, stages=16)
    assert tile_cost(many, operands(DType.FLOAT32), MACHINE).resident == 0
    wide = replace(POINTS, row_points=16, column_points=16)
    assert tile_cost(wide, operands(DType.FLOAT32), MACHINE).resident == 0


def taken(text: str, *sizes: tuple[int, ...], device: str = "cuda:sm_80") -> list[str]:
    """Names of the plans that the text's nest gets at these sizes, all arrays well aligned."""
    (p,) = analyse(text).values()
    kernel = schedule_program(p, Options(), {}).kernel
    (choice,) = map_gpu(kernel, resolve_target(device).machine).choices
    assert isinstance(choice, Choice)
    found = []
    for values in sizes:
        known = dict(zip(p.sizes, values, strict=True))
        known |= {f"{t.name}.phase": 0 for t in (*p.inputs, *p.outputs)}
        versions = [v for v in choice.versions if isinstance(v, Taken)]
        plan = next(v.plan for v in versions if holds(v.when, known))
        found.append(plan.name)  # type: ignore[union-attr]
    return found


MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def test_products_get_tiles_that_keep_multiprocessors_busy() -> None:
    sizes = (8192, 8192, 8192), (512, 512, 512), (32, 8192, 32), (1, 4096, 4096)
    assert taken(MM, *sizes) == [
        "SharedTiles:128x128x16x2x8x8",
        "SharedTiles:64x64x16x2x4x4",
        "SplitSum:64x64x16x2x4x4",
        "BlockRows:32x8",
    ]
    half = taken(MM.replace("float", "float16"), *sizes[:2], device="cuda:sm_90a")
    assert half == ["WarpTiles:128x128x32x3x64x32", "WarpTiles:64x64x32x3x32x32"]


def test_rows_get_as_many_threads_as_they_are_long() -> None:
    softmax = tc.library.source("softmax")
    found = taken(softmax, (4096, 1), (100000, 16), (1024, 1000), (4, 100000))
    assert found == ["ThreadPoints:1", "OnlineRows:32x8", "BlockRows:128x1x8", "OnlineRows:512x1"]
    longer = taken(softmax, (4096, 4000), (4096, 8192), (1024, 30000), (1024, 100000))
    assert longer[0] == "BlockRows:512x1x8" and longer[-1] == "OnlineRows:128x1"
    assert {x.partition(":")[0] for x in longer[1:3]} == {"SharedRows"}
    norm = taken(tc.library.source("layer_norm"), (4096, 4000), (4096, 100000))
    assert norm == ["BlockRows:512x1x8", "OnlineRows:32x8"]
    sums = "def f(float(N,D) X) -> (S) { S(d) +=! X(n,d) }"  # whose neighbours are columns
    assert taken(sums, (8, 100000), (100000, 8)) == ["ThreadPoints:1", "BlockRows:512x1"]


def test_maps_move_four_numbers_at_once_where_memory_is_busy() -> None:
    text = "def f(float(N,M) X) -> (Y) { Y(i,j) = X(i,j) + 1 }"
    assert taken(text, (10, 8), (4096, 4096)) == ["ThreadPoints:1", "ThreadPoints:4"]


def test_maps_are_turned_where_lines_of_memory_are_what_they_wait_for() -> None:
    turned = "def f(float(N,M) X, float(M) b) -> (Y) { Y(i,j) = X(j,i) * b(i) }"
    sizes = (5, 5), (1, 100000), (4096, 4096)
    assert taken(turned, *sizes) == ["ThreadPoints:1", "ThreadPoints:1", "TurnedTiles:32"]


def test_terms_are_sorted_where_they_are_many() -> None:
    text = "def f(int32(J) I, float(J,D) W) -> (float(V,D) G) { G(I(j),d) +=! W(j,d) }"
    (p,) = analyse(text).values()
    kernel = map_gpu(schedule_program(p, Options(), {}).kernel, MACHINE).kernel
    branches = [x for x, _ in walk(kernel.body) if isinstance(x, Branch) and x.orelse is not None]
    branch = next(x for x in branches if "order.1" in {a.buffer for a in accesses(x.then)})
    is_sorted = [holds(branch.condition, {"J": j, "D": 16, "V": 1000}) for j in (20, 100000)]
    assert is_sorted == [False, True]


def test_terms_go_to_copies_where_they_would_meet_at_few_elements() -> None:
    text = "def f(int32(J) I, int32(J) W) -> (int32(V) H) { H(I(j)) +=! W(j) }"
    (p,) = analyse(text).values()
    kernel = map_gpu(schedule_program(p, Options(), {}).kernel, MACHINE).kernel
    branches = [x for x, _ in walk(kernel.body) if isinstance(x, Branch) and x.orelse is not None]
    branch = next(x for x in branches if "H_copies.1" in {a.buffer for a in accesses(x.then)})
    sizes = (20, 4), (1000000, 1000000), (1000000, 16)
    assert [holds(branch.condition, {"J": j, "V": v}) for j, v in sizes] == [False, False, True]


def cost_of(text: str, device: str = "cuda:sm_80") -> GridCost:
    """Of the plan for all sizes."""
    (p,) = analyse(text).values()
    kernel = schedule_program(p, Options(), {}).kernel
    choices = map_gpu(kernel, resolve_target(device).machine, tells_all=True).choices
    (choice,) = [x for x in choices if isinstance(x, Choice)]
    cost = choice.offered[-1][1].cost
    assert isinstance(cost, GridCost)
    return cost


def test_a_cost_follows_from_the_machine_and_from_where_threads_load() -> None:
    straight = cost_of("def f(float(N,M) X) -> (Y) { Y(i,j) = X(i,j) + 1 }")
    turned = cost_of("def f(float(N,M) X) -> (Y) { Y(i,j) = X(j,i) + 1 }")
    assert (straight.lines, turned.lines) == (1, 32)
    sizes = {"N": 4096, "M": 4096}
    assert evaluate(straight.memory, sizes) < evaluate(turned.memory, sizes)
    # 128 MiB at 10 bytes a cycle of 108 multiprocessors, and the launch
    assert 124_000 < evaluate(straight.cycles, sizes) < 132_000
    newer = cost_of("def f(float(N,M) X) -> (Y) { Y(i,j) = X(i,j) + 1 }", "cuda:sm_90a")
    assert evaluate(newer.cycles, sizes) < evaluate(straight.cycles, sizes) * 0.7


def test_steps_in_order_wait_for_each_other() -> None:
    text = """def f(float(T,N) X) -> (float(T+1,N) S) {
      S(0,n) = 0  for t in T { S(t+1,n) = S(t,n) * 0.5 + X(t,n) }
    }"""
    (p,) = analyse(text).values()
    kernel = schedule_program(p, Options(), {}).kernel
    choices = map_gpu(kernel, MACHINE, tells_all=True).choices
    costs = [x.offered[-1][1].cost for x in choices if isinstance(x, Choice)]
    few, many = ({"T": t, "N": 64} for t in (4, 4000))
    assert max(evaluate(c.cycles, many) - evaluate(c.cycles, few) for c in costs) > 4000 * 100


def test_what_no_multiprocessor_holds_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propose, "LARGE", (256, 256, 64, 4, 16, 16))
    assert not any("256x256" in x for x in taken(MM, (8192, 8192, 8192)))
    tc.define(MM, target="cuda:sm_86").explain("plan")


def test_a_plan_is_asked_for_by_its_name() -> None:
    for name, text in (
        ("SharedTiles:32x64x32x2x2x4", "blocks of 32 m x 64 n, 32 k at a time, 2 stages"),
        ("SplitSum", "sums of parts"),
        ("BlockRows:64x1", "m: 64 threads for each of m, n"),
    ):
        plan = tc.define(MM, target="cuda:sm_80", options=Options(plan=name)).explain("plan")
        assert text in " ".join(plan.split()), plan
    of_nest = Options(plan="m: ThreadPoints:1")
    plan = tc.define(MM, target="cuda:sm_80", options=of_nest).explain("plan")
    assert "a thread for each of m, n" in plan and "else" not in plan
