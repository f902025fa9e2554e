"""How a nest runs on a device: a value that proposals make and `apply` turns into loops."""

from __future__ import annotations

from msgspec import Struct

from tcsym.index.expr import TRUE, Condition, Index
from tcsym.ir.device import WARP

BLOCK_THREADS = 256


class ThreadPoints(Struct, frozen=True):
    """A thread for each iteration of the loops, which are parallel and nest perfectly.

    points: neighbours along the last of them are one thread's; its extent is a multiple of them.
    """

    loops: tuple[str, ...]
    points: int = 1

    def __str__(self) -> str:
        number = f"{self.points} neighbours " if self.points > 1 else ""
        return f"a thread for each {number}of {', '.join(self.loops)}"


class BlockRows(Struct, frozen=True):
    """`width` threads for each iteration of the loops, which share the loops inside.

    Sums are combined by threads: within a warp by shuffles, then through shared memory. A block has
    `rows` iterations, one of them if they are wider than a warp.
    """

    loops: tuple[str, ...]
    width: int
    rows: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.width * self.rows

    def __str__(self) -> str:
        return f"{self.width} threads for each of {', '.join(self.loops)}"


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

    def __str__(self) -> str:
        return f"{self._text()}, {self.warp_rows} x {self.warp_columns} a warp"


class SplitSum(Struct, frozen=True):
    """Parts of the sum of tiles, each by blocks of their own; a second grid adds them, in order.

    terms: of a part, a multiple of the tiles' depth.
    """

    tiles: SharedTiles | WarpTiles
    terms: Index

    def __str__(self) -> str:
        return f"sums of parts of {self.tiles.sum}, then added; {self.tiles}"


DevicePlan = ThreadPoints | BlockRows | SharedTiles | WarpTiles | SplitSum


class Version(Struct, frozen=True):
    """The plan that a nest has where `when` holds and no version before it is for these sizes."""

    plan: DevicePlan
    when: Condition = TRUE
