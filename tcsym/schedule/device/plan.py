"""How a nest runs on a device: a value that proposals make and `apply` turns into loops."""

from __future__ import annotations

from dataclasses import dataclass

from tcsym.index.expr import TRUE, Condition

BLOCK_THREADS = 256


@dataclass(frozen=True, slots=True)
class ThreadPoints:
    """A thread for each iteration of the loops, which are parallel and nest perfectly."""

    loops: tuple[str, ...]

    def __str__(self) -> str:
        return f"a thread for each of {', '.join(self.loops)}"


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A block for each iteration of the loops; its threads share the loops inside.

    Sums are combined by threads: within a warp by shuffles, then through shared memory.
    """

    loops: tuple[str, ...]
    threads: int

    def __str__(self) -> str:
        return f"{self.threads} threads for each of {', '.join(self.loops)}"


@dataclass(frozen=True, slots=True)
class SharedTiles:
    """Blocks of rows x columns; operands staged in shared memory, `depth` steps of a sum at a time.

    Each thread holds `row_points` x `column_points` of the block's points in registers. `sum`: the
    loop whose steps are staged; the others of the sums run around it.
    """

    rows: str
    columns: str
    sum: str
    block_rows: int
    block_columns: int
    depth: int
    row_points: int
    column_points: int

    @property
    def threads(self) -> int:
        """Of a block."""
        points = self.row_points * self.column_points
        return self.block_rows * self.block_columns // points

    def __str__(self) -> str:
        return (
            f"blocks of {self.block_rows} {self.rows} x {self.block_columns} {self.columns}, "
            f"{self.depth} {self.sum} at a time, {self.row_points} x {self.column_points} a thread"
        )


DevicePlan = ThreadPoints | BlockRows | SharedTiles


@dataclass(frozen=True, slots=True)
class Version:
    """The plan that a nest has where `when` holds and no version before it is for these sizes."""

    plan: DevicePlan
    when: Condition = TRUE
