# SPDX-License-Identifier: Apache-2.0
"""How a nest runs on a device: a value that proposals make and `apply` turns into loops.

`name` is what `Options.plan` calls it: its class and its numbers, `SharedTiles:128x128x16x2x8x8`.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.index.expr import TRUE, ZERO, Condition, Index
from tcsym.ir.device import TILE_COLUMNS, TILE_ROWS, WARP, Operand

BLOCK_THREADS = 256  # where no plan says otherwise: full multiprocessors hold whole blocks


def _named(plan: object, *numbers: int) -> str:
    return f"{type(plan).__name__}:{'x'.join(map(str, numbers))}"


class ThreadPoints(Struct, frozen=True):
    """A thread for each iteration of the loops, which are parallel and nest perfectly.

    points: neighbours along the last of them are one thread's; its extent is a multiple of them.
    """

    loops: tuple[str, ...]
    points: int = 1

    @property
    def name(self) -> str:
        return _named(self, self.points)

    def __str__(self) -> str:
        number = f"{self.points} neighbours " if self.points > 1 else ""
        return f"a thread for each {number}of {', '.join(self.loops)}"


class TurnedTiles(Struct, frozen=True):
    """Blocks of `size` x `size` points of a map, read along `across` and written along the last of
    the loops."""

    loops: tuple[str, ...]
    across: str
    size: int

    @property
    def name(self) -> str:
        return _named(self, self.size)

    def __str__(self) -> str:
        tiles = f"{self.size} {self.across} x {self.size} {self.loops[-1]}"
        return f"blocks of {tiles}, turned in shared memory"


class BlockRows(Struct, frozen=True):
    """`width` threads for each iteration of the loops, which share the loops inside.

    Sums are combined by threads: within a warp by shuffles, then through shared memory. A block has
    `rows` iterations, one of them if they are wider than a warp. held: elements of a row that each
    thread keeps in registers from one loop to the next; the row is no longer than all have.
    """

    loops: tuple[str, ...]
    width: int
    rows: int = 1
    held: int = 0

    @property
    def name(self) -> str:
        return _named(self, self.width, self.rows, *[self.held] * bool(self.held))

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.width * self.rows

    def __str__(self) -> str:
        held = f", {self.held} elements each in registers" if self.held else ""
        return f"{self.width} threads for each of {', '.join(self.loops)}{held}"


class SharedRows(BlockRows, frozen=True):
    """Those elements are kept in memory that the block shares; each is one thread's alone."""

    def __str__(self) -> str:
        return f"{super().__str__().removesuffix('in registers')}in shared memory"


class OnlineRows(BlockRows, frozen=True):
    """A running maximum or mean and the sums that need it are made together (`online`)."""

    def __str__(self) -> str:
        return f"{super().__str__()}, sums beside a running maximum or mean"


class Tiles(Struct, frozen=True):
    """Blocks of rows x columns; operands staged in shared memory, `depth` steps of a sum at a time.

    `sum`: the loop whose steps are staged; the others of the sums run around it. `stages`: panels
    that are there at once: all but one are copied while one is used. `copied`: bytes that a copy
    may move at once, where an operand lies so.
    """

    rows: str
    columns: str
    sum: str
    block_rows: int
    block_columns: int
    depth: int
    stages: int
    copied: int

    @property
    def sizes(self) -> dict[str, int]:
        """Of a block, along its rows and columns."""
        return {self.rows: self.block_rows, self.columns: self.block_columns}

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of a block, depth, stages; rows and columns of a thread or a warp."""
        own = (getattr(self, f) for f in self.__struct_fields__[8:])
        return (self.block_rows, self.block_columns, self.depth, self.stages, *own)

    @property
    def name(self) -> str:
        return _named(self, *self.shape)

    def _text(self) -> str:
        return (
            f"blocks of {self.block_rows} {self.rows} x {self.block_columns} {self.columns}, "
            f"{self.depth} {self.sum} at a time, {self.stages} stages, {self.copied} bytes a copy"
        )


class SharedTiles(Tiles, frozen=True):
    """Each thread holds `row_points` x `column_points` of the block's points in registers."""

    row_points: int
    column_points: int

    @property
    def threads(self) -> int:
        """Of a block."""
        points = self.row_points * self.column_points
        return self.block_rows * self.block_columns // points

    def own(self, side: str) -> int:
        """Points of a thread along its rows or columns."""
        return self.row_points if side == self.rows else self.column_points

    def __str__(self) -> str:
        return f"{self._text()}, {self.row_points} x {self.column_points} a thread"


class WarpTiles(Tiles, frozen=True):
    """Each warp holds `warp_rows` x `warp_columns` points, as matrices that it multiplies."""

    warp_rows: int
    warp_columns: int

    @property
    def threads(self) -> int:
        """Of a block."""
        warps = self.block_rows // self.warp_rows * (self.block_columns // self.warp_columns)
        return warps * WARP

    def operand(self, side: str) -> Operand:
        """What its panel is in products of matrices."""
        return "left" if side == self.rows else "right"

    def own(self, side: str) -> int:
        """Matrices of a warp along its rows or columns."""
        if side == self.rows:
            return self.warp_rows // TILE_ROWS
        return self.warp_columns // TILE_COLUMNS

    def __str__(self) -> str:
        return f"{self._text()}, {self.warp_rows} x {self.warp_columns} a warp"


class SplitSum(Struct, frozen=True):
    """Parts of the sum of tiles, each by blocks of their own; a second grid adds them, in order.

    terms: of a part, a multiple of the tiles' depth.
    """

    tiles: SharedTiles | WarpTiles
    terms: Index

    @property
    def name(self) -> str:
        return _named(self, *self.tiles.shape)

    def __str__(self) -> str:
        return f"sums of parts of {self.tiles.sum}, then added; {self.tiles}"


DevicePlan = ThreadPoints | TurnedTiles | BlockRows | SharedTiles | WarpTiles | SplitSum


class GridCost(Struct, frozen=True):
    """What a grid takes, over sizes.

    threads, registers, shared_bytes: of a block, of a thread, of a block. resident: blocks of a
    multiprocessor at once; 0: it holds none. busy: cycles of a block, by what is busiest; waits: it
    takes at least. memory: cycles in which memory moves what the grid needs. cycles: of it all.
    conflicts: accesses of shared memory's banks that a load takes, at most. lines: those of memory
    that an access of a warp reaches, at most.
    """

    threads: int
    registers: int
    shared_bytes: int
    resident: int
    blocks: Index
    busy: Index
    waits: Index
    memory: Index
    cycles: Index = ZERO
    conflicts: int = 1
    lines: int = 1

    def __str__(self) -> str:
        conflicts = f", {self.conflicts} conflicts of banks" if self.conflicts > 1 else ""
        lines = f", {self.lines} lines an access" if self.lines > 1 else ""
        return (
            f"{self.threads} threads of {self.registers} registers, {self.shared_bytes} bytes "
            f"shared, {self.resident} blocks at once{conflicts}{lines}; cycles of a block: "
            f"{self.busy}, at least {self.waits}; of memory: {self.memory}; blocks: {self.blocks}"
        )


class Version(Struct, frozen=True):
    """The plan that a nest has where `when` holds and no version before it is for these sizes.

    cost: if it is known; of several, the cheapest is taken (`cheapest`). is_extra: for those alone
    who ask for it by name.
    """

    plan: DevicePlan
    when: Condition = TRUE
    cost: GridCost | None = None
    is_extra: bool = False


class InOrder(Struct, frozen=True):
    """How the steps of a loop in order are taken (`device.steps`). loops: of rows outside of it."""

    loop: str
    loops: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return type(self).__name__


class ThreadSteps(InOrder, frozen=True):
    def __str__(self) -> str:
        return f"threads take rows of {', '.join(self.loops)} through all steps of {self.loop}"


class BlockSteps(InOrder, frozen=True):
    def __str__(self) -> str:
        return f"a block for each of {', '.join(self.loops)} takes all steps of {self.loop}"


class GridSteps(InOrder, frozen=True):
    def __str__(self) -> str:
        return f"blocks that stay share each nest of each step of {self.loop}"


class LaunchSteps(InOrder, frozen=True):
    def __str__(self) -> str:
        return f"a launch for each nest of each step of {self.loop}"


Steps = ThreadSteps | BlockSteps | GridSteps | LaunchSteps


class Stepped(Struct, frozen=True):
    """A way to take steps, and what they take that way, if it is known."""

    plan: Steps
    cycles: Index | None
    when: Condition = TRUE
