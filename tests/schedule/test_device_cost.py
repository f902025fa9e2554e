"""What tiles of a device cost: from facts of its machine, and from where a warp's lanes load."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import index, var
from tcsym.schedule.device import cost
from tcsym.schedule.device.cost import tile_cost, wavefronts
from tcsym.schedule.device.panels import Panel
from tcsym.schedule.device.plan import SharedTiles, WarpTiles
from tcsym.target.cuda import KINDS, machine_of
from tcsym.types import DType

LOOPS = ("m", "n", "k")
POINTS = SharedTiles(*LOOPS, 128, 128, 16, 2, 16, 8, 8)
FEW_POINTS = SharedTiles(*LOOPS, 64, 64, 16, 2, 16, 4, 4)
WARPS = WarpTiles(*LOOPS, 128, 128, 32, 3, 16, 64, 32)
MACHINE = machine_of(KINDS[0])


def operands(dtype: DType) -> tuple[Panel, Panel]:
    a = Panel(Read("A", (var("m"), var("k")), dtype), "m", True)
    return a, Panel(Read("B", (var("k"), var("n")), dtype), "n", False)


@pytest.mark.parametrize("plan", [POINTS, FEW_POINTS, WARPS])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_tiles_fit_and_their_loads_do_not_conflict(plan, kind) -> None:
    panels = operands(DType.FLOAT16 if plan is WARPS else DType.FLOAT32)
    assert tile_cost(plan, panels, machine_of(kind)).resident >= 1
    assert [wavefronts(plan, p) for p in panels] == [1, 1]


def test_rows_of_panels_without_padding_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PADDING", 0)
    assert [wavefronts(WARPS, p) for p in operands(DType.FLOAT16)] == [4, 4]


def test_what_does_not_fit_holds_no_block() -> None:
    many = replace(POINTS, stages=16)
    assert tile_cost(many, operands(DType.FLOAT32), MACHINE).resident == 0
    wide = replace(POINTS, row_points=16, column_points=16)
    assert tile_cost(wide, operands(DType.FLOAT32), MACHINE).resident == 0


def test_few_large_blocks_leave_multiprocessors_idle() -> None:
    large, small = (tile_cost(p, operands(DType.FLOAT32), MACHINE) for p in (POINTS, FEW_POINTS))

    def cycles(n: int) -> tuple[int, int]:
        return tuple(
            c.total(index((n // size) ** 2), MACHINE).as_int() or 0
            for c, size in ((large, 128), (small, 64))
        )

    assert cycles(512)[0] > cycles(512)[1]
    assert cycles(8192)[0] < cycles(8192)[1]
