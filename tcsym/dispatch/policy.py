# SPDX-License-Identifier: Apache-2.0
"""Strategies as policies: what table there is first, and which one they propose in its place.

A policy answers from a table and proposes another one, at once or from work beside the calls. It
knows nothing of entries and switches: the dispatcher makes them from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from tcsym.dispatch.making import Making
from tcsym.dispatch.table import Ranges, Table
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.index.expr import FALSE, TRUE, index
from tcsym.index.values import condition_substitute
from tcsym.sizes.region import Region

Edit = Callable[[Table], Table]


class Holder(Protocol):
    """Of the table that serves now."""

    @property
    def table(self) -> Table: ...

    def propose(self, edit: Edit, *compiled: Version) -> Table:
        """The table that serves from now on. compiled: versions whose entries are made first."""

    def serving(self, sizes: Values) -> Version:
        """The version for a call of these sizes, which is kept."""

    def calls(self, version: Version) -> int:
        """Calls that a version served."""


class Policy:
    """That of `Symbolic`: the versions of all regions, and never others."""

    holder: Holder
    refusal: OptionError | None = None
    first_look = 0  # calls after which one is timed, and `looked` is asked; 0: none is

    def __init__(self, making: Making) -> None:
        self.making = making

    # ---- tables

    def first(self) -> Table:
        """Asked once, when a call needs it."""
        regions = self.making.regions
        if len(regions) == 1:
            return Table(self._ranges(self.making.symbolic(regions[0])))
        return Table(self._ranges(*[self.making.symbolic(r, r.context) for r in regions]))

    def _ranges(self, *versions: Version) -> Ranges:
        return Ranges.of(versions, self.making.plan.sizes)

    def wanted(self, table: Table, sizes: Values) -> Table:
        """The table with a version that is meant for these sizes; the same if it has one."""
        return table

    def admitted(self, table: Table, sizes: Values) -> Table:
        """As `wanted`; what is least used makes room if there is too much."""
        return self.wanted(table, sizes)

    def answered(self, table: Table, own: Version) -> Table:
        """The table once a call came for a version without code."""
        return table

    # ---- calls

    def called(self, sizes: Values) -> None:
        """A call came through Python."""

    def noticed(self, sizes: Values, seconds: float, calls: int) -> int:
        """One of so many calls of these sizes was timed. Calls after which to be asked again."""
        return 0

    def looked(self, seconds: float, total: int, counts: Mapping[Values, int]) -> int:
        """One of all calls was timed. The number of calls at which to be asked again."""
        return 0

    def precompile(self) -> None:
        """Compile all that calls with dense arrays will need."""
        for version in self.holder.table.ranges.versions:
            version.variants.made_for(version.variants.dense)

    # ---- what is told

    def region_of(self, sizes: Values) -> Region:
        """The options for these sizes, and where they are from."""
        return self.making.region_of(sizes)

    def others(self, table: Table, sizes: Values, calls: int) -> tuple[str, ...]:
        """What else could serve these sizes, and what it would take, as lines of text."""
        return ()

    def possible(self, table: Table, given: Mapping[str, int]) -> tuple[Version, ...]:
        """Versions that may serve calls of which these sizes are known."""
        names = self.making.plan.sizes
        if len(given) == len(names):
            sizes = tuple([given[name] for name in names])
            found = self.wanted(table, sizes).serving(sizes)
            return () if found is None else (found,)
        values = {name: index(value) for name, value in given.items()}
        return tuple(
            v
            for v in table.versions
            if v.context == TRUE or condition_substitute(v.context, values) != FALSE
        )


class Refused(Policy):
    """A strategy that cannot serve this def, in a text with others that it can serve."""

    def __init__(self, making: Making, why: OptionError) -> None:
        super().__init__(making)
        self.refusal = self._why = why

    def first(self) -> Table:
        raise self._why


class Single(Policy):
    """One version that was chosen before: what an `Executable` runs. It counts its own calls."""

    def __init__(self, making: Making, version: Version) -> None:
        super().__init__(making)
        self._version = replace(version, calls=0, is_gone=False)

    def first(self) -> Table:
        return Table(self._ranges(self._version))
