"""The table of a native dispatcher: what its words mean, and where the rows of given sizes lie."""

from __future__ import annotations

from typing import Any

from tcsym.runtime.entering import OPTIONS

SYMBOL = "tcsym_switch"
TABLE = "tcsym_switch_table"
# Words of the table before its rows.
NDARRAY, DEFAULT, DEFAULT_CODE, NOTICE, FIRST_NOTICE, TOTAL, TOTAL_NOTICE = range(7)
TENSOR, PARAMETER, VIEW, KEYS_AT, PLAIN_KEYS, NAMES = range(7, 13)  # names come last
COUNTED = 1  # function of a row that has none of its own: the default one serves
GROUP, LOG_GROUPS = 4, 7
REGION_WORDS = 2
MULTIPLIER = 0x9E3779B97F4A7C15  # 2^64 / golden ratio (Knuth, vol. 3, 6.4)
WORD = (1 << 64) - 1


class Layout:
    """How sizes are read off the arguments, and what a row of the table has. Plain data.

    `slots`: of the sizes that tell calls apart; `known`: values of the others, by slot. `places`:
    (argument, axis) of each size, or (-1, position) in `free`, the names of sizes that `sizes=`
    gives; `ranks` of these arguments. A row is its sizes, its function,
    calls so far, the count at which `NOTICE` is called, and the address of its code if the function
    is one of our built-ins, which takes no `self`. `names`: of all arguments. `n_regions`: ranges
    of sizes with functions of their own; each has its function and its code.
    """

    def __init__(
        self,
        known: tuple[int | None, ...],
        slots: tuple[int, ...],
        places: tuple[tuple[int, int], ...],
        ranks: tuple[tuple[int, int], ...],
        names: tuple[str, ...],
        free: tuple[str, ...] = (),
        n_regions: int = 0,
    ) -> None:
        self.known = known
        self.slots = slots
        self.places = places
        self.ranks = ranks
        self.names = names
        self.free = free
        self.n_regions = n_regions

    @property
    def fields(self) -> tuple[Any, ...]:
        """`Layout(*layout.fields)` is the same."""
        return tuple(vars(self).values())

    @property
    def row_words(self) -> int:
        return len(self.places) + 4

    @property
    def regions_at(self) -> int:
        """First word of the regions."""
        return NAMES + len(self.names) + len(OPTIONS) + len(self.free)

    @property
    def rows_at(self) -> int:
        """First word of the rows."""
        return self.regions_at + REGION_WORDS * self.n_regions

    @property
    def words(self) -> int:
        return self.rows_at + (GROUP << LOG_GROUPS) * self.row_words

    def group(self, sizes: tuple[int, ...]) -> int:
        """First word of the group of rows for these sizes."""
        h = 0
        for size in sizes:
            h = ((h ^ size) * MULTIPLIER) & WORD
        return self.rows_at + (h >> (64 - LOG_GROUPS)) * GROUP * self.row_words
