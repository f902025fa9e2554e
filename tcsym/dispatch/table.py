# SPDX-License-Identifier: Apache-2.0
"""Which version serves which sizes, and why: one value, which strategies propose (`policy`).

What serves a call of some sizes is the first of these that there is:

    points       a version for these sizes, or for what their key says of them
    preferred    the way that serves all calls fastest, if its version is ready
    measured     the options that were the fastest at these sizes
    ranges       the first version that is meant for them
    stand-ins    in place of such a version: another one, until its own code is made

The dispatcher holds the table and makes from it what calls enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.dispatch.version import Values, Version
from tcsym.runtime.size_functions import first_holding
from tcsym.runtime.switch import NOTICED_FROM

Decide = Callable[[bool, float, float], None]


def _first(*_: int) -> int:
    return 0


class Ranges(Struct, frozen=True):
    """Versions in the order in which they are asked. find: sizes -> place of the one for them."""

    versions: tuple[Version, ...] = ()
    find: Callable[..., int] = _first

    @staticmethod
    def of(versions: Sequence[Version], sizes: Sequence[str], is_total: bool = True) -> Ranges:
        """is_total: the last version serves whatever is left."""
        asked = [v.context for v in (versions[:-1] if is_total else versions)]
        return Ranges(tuple(versions), first_holding(asked, sizes) if asked else _first)

    def serving(self, sizes: Values) -> Version | None:
        """The version that is meant for these sizes."""
        found = self.find(*sizes)
        return self.versions[found] if found < len(self.versions) else None


NO_RANGES = Ranges()


class Point(NamedTuple):
    """What calls of some sizes enter. again: calls after which the policy is asked again; 0: never.

    decide: calls enter this version and what serves them else in turns (`Trial`); told the outcome.
    It serves calls through Python once it is adopted.
    """

    version: Version
    again: int = 0
    is_adopted: bool = True
    decide: Decide | None = None


class Table(Struct, frozen=True):
    """key: of `points`, from sizes; None: sizes themselves.

    ready: those of `preferred` that have code. before: the one of them that is asked before the
    only range and passes on to it, so that no calls are told apart by sizes.
    noticed_after: calls of the same sizes after which the policy is asked; 0: it never is.
    stays_in_python: calls do not enter native code. is_checked: code of points refuses other sizes.
    """

    ranges: Ranges = NO_RANGES
    points: Mapping[Values, Point] = field(default_factory=dict)
    key: Callable[[Values], Values] | None = None
    preferred: Ranges = NO_RANGES
    ready: frozenset[Version] = frozenset()
    before: Version | None = None
    measured: Mapping[Values, Version] = field(default_factory=dict)
    stand_ins: Mapping[Version, Version] = field(default_factory=dict)
    noticed_after: int = 0
    stays_in_python: bool = False
    is_checked: bool = False

    # ---- sizes -> version

    def serving(self, sizes: Values) -> Version | None:
        """The version for a call of these sizes; its code may have to be made yet."""
        point = self.point(sizes)
        if point is not None and point.is_adopted:
            return point.version
        return self.way(sizes) or self.own(sizes)

    def point(self, sizes: Values) -> Point | None:
        return self.points.get(sizes if self.key is None else self.key(sizes))

    def own(self, sizes: Values) -> Version | None:
        """The symbolic version: with the options measured for these sizes, or of their range."""
        return self.measured.get(sizes) or self.ranges.serving(sizes)

    def base(self, sizes: Values) -> Version | None:
        """What runs calls that have no version of their own, now."""
        own = self.own(sizes)
        return self.way(sizes) or (own and self.stand_ins.get(own, own))

    def way(self, sizes: Values) -> Version | None:
        """The version of the preferred way, if it is ready."""
        found = self.preferred.serving(sizes)
        return found if found in self.ready else None

    # ---- what calls enter

    def row(self, sizes: Values) -> Point | None:
        """What calls of these sizes enter, if it is not the version of their range."""
        point = self.point(sizes)
        if point is not None:
            return point
        base = self.base(sizes)
        if base is None or base is self.before or base is self.ranges.serving(sizes):
            return None
        return Point(base, self.noticed_after and NOTICED_FROM)

    @property
    def only(self) -> Version | None:
        """The one version that calls enter directly, if they need not be told apart."""
        versions = self.ranges.versions
        if self.noticed_after or self.measured or self.preferred.versions:
            return None
        if len(versions) == 1 and not self.points:
            return versions[0]
        if self.is_checked and len(self.points) == 1 and not versions:
            return next(iter(self.points.values())).version
        return None

    @property
    def leads(self) -> bool:
        """True if calls enter versions of the preferred way by their sizes."""
        return bool(self.preferred.versions) and self.before is None

    def place(self, version: Version) -> int | None:
        """Of a version among several ranges."""
        versions = self.ranges.versions
        return versions.index(version) if len(versions) > 1 and version in versions else None

    # ---- what there is

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions that serve, in the order in which they are told of."""
        adopted = [p.version for p in self.points.values() if p.is_adopted]
        own = (*self.ranges.versions, *self.measured.values(), *self.preferred.versions)
        return tuple(dict.fromkeys((*own, *adopted)))

    @property
    def tried(self) -> tuple[Version, ...]:
        """Versions that serve some calls and may yet be given up."""
        return tuple([p.version for p in self.points.values() if p.decide is not None])

    # ---- other tables

    def with_point(self, key: Values, point: Point) -> Table:
        return replace(self, points={**self.points, key: point})

    def without_point(self, key: Values) -> Table:
        return replace(self, points={k: p for k, p in self.points.items() if k != key})
