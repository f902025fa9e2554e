# SPDX-License-Identifier: Apache-2.0
"""Strategies: which versions of a kernel exist and when they are made.

A strategy is a small frozen value; `define(strategy=)` takes one or its name. Results never depend
on it. docs/strategies.md says when which is worth it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from tcsym.errors import OptionError

DEFAULT_SHARE = 0.25
MOST_VERSIONS = 64


class Symbolic(Struct, frozen=True):
    """One version for all sizes; with tuned options, one for each of their regions."""


class Specialize(Struct, frozen=True):
    """A version with numbers for sizes, compiled on demand for each choice of sizes that turns up.

    bind: numbers before scheduling, or after it (only code generation sees them).
    max_variants: most versions kept; the least used one makes room.
    background: False: a call of new sizes compiles and waits. True or a share in (0, 1]: the
        symbolic version answers while another process compiles, on at most that share of one core.
    """

    bind: Literal["before", "after"] = "after"
    max_variants: int = MOST_VERSIONS
    background: bool | float = False

    def __post_init__(self) -> None:
        if self.bind not in ("before", "after"):
            raise OptionError(f"Specialize: `bind` is {self.bind!r}, expected before or after")
        _require_count("Specialize", "max_variants", self.max_variants)
        _require_share("Specialize", "background", self.background)

    @property
    def share(self) -> float:
        """Share of a core for compiling beside calls; 0: calls wait instead."""
        return DEFAULT_SHARE if self.background is True else float(self.background)


class Bucket(Struct, frozen=True):
    """Versions for ranges of declared sizes, made ahead by `precompile()` or at the first call.

    edges: size -> upper ends of its buckets, ascending; the declared upper bound ends the last.
    count: buckets for each bounded size, cut where the estimated work grows by equal factors.
    learn: cut instead where the sizes of the first `learn` calls lie; one version serves these.
    Without any of them: up to 4 buckets for each size, fewer where there are many sizes.
    Sizes need a `Dim` with an upper bound to be cut.
    """

    edges: Mapping[str, tuple[int, ...]] | None = None
    count: int = 0
    learn: int = 0

    def __post_init__(self) -> None:
        if sum(map(bool, (self.edges, self.count, self.learn))) > 1:
            raise OptionError("Bucket: give one of `edges`, `count` and `learn`")
        for name in ("count", "learn"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise OptionError(f"Bucket: `{name}` is {value!r}, expected an integer >= 0")
        if self.edges is not None:
            force_setattr(self, "edges", _checked_edges(self.edges))


class Pad(Struct, frozen=True):
    """Inputs are padded to few sizes, results cropped: few versions with numbers for sizes.

    to: "max": to the declared upper bound of each size that has one. A number: to its multiples.
    sizes: names of the sizes to pad; None: all that are not fixed (for "max": all with a bound).
    bind, max_variants: as for `Specialize`, for the padded sizes.
    Exact for every program: only ranges for which that is proved run into the padding. Errors, at
    `define`: OptionError where no size can be padded so.
    """

    to: Literal["max"] | int = "max"
    sizes: tuple[str, ...] | None = None
    bind: Literal["before", "after"] = "after"
    max_variants: int = MOST_VERSIONS

    def __post_init__(self) -> None:
        if self.to != "max":
            _require_count("Pad", "to", self.to)
        if self.bind not in ("before", "after"):
            raise OptionError(f"Pad: `bind` is {self.bind!r}, expected before or after")
        _require_count("Pad", "max_variants", self.max_variants)
        if self.sizes is not None:
            names = (self.sizes,) if isinstance(self.sizes, str) else tuple(self.sizes)
            if not names or not all(isinstance(name, str) for name in names):
                raise OptionError(f"Pad: `sizes` is {self.sizes!r}, expected names of sizes")
            force_setattr(self, "sizes", names)


class Auto(Struct, frozen=True):
    """The symbolic version answers at once; sizes that cost much are specialised beside it.

    hot: sizes are worth it once calls with them took this many times the compilation's time.
    max_variants: most versions kept, as for `Specialize`.
    share: of one core, that compiling beside the calls may use.
    A specialised version is adopted only if calls that alternate between both are faster with it.
    """

    hot: float = 20.0
    max_variants: int = MOST_VERSIONS
    share: float = DEFAULT_SHARE

    def __post_init__(self) -> None:
        if not isinstance(self.hot, int | float) or isinstance(self.hot, bool) or not self.hot >= 0:
            raise OptionError(f"Auto: `hot` is {self.hot!r}, expected a number >= 0")
        _require_count("Auto", "max_variants", self.max_variants)
        _require_share("Auto", "share", self.share)


Strategy = Symbolic | Specialize | Bucket | Pad | Auto
_BY_NAME: dict[str, type[Strategy]] = {
    "auto": Auto,
    "symbolic": Symbolic,
    "specialize": Specialize,
    "bucket": Bucket,
    "pad": Pad,
}


def resolve_strategy(strategy: object) -> Strategy:
    """The strategy that a name or a strategy object means. Errors: OptionError."""
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, str) and strategy in _BY_NAME:
        return _BY_NAME[strategy]()
    raise OptionError(
        f"unknown strategy {strategy!r}",
        hint=f"one of {', '.join(_BY_NAME)}, or an object of tcsym.strategy",
    )


def _require_count(owner: str, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{owner}: `{name}` is {value!r}, expected an integer >= 1")


def _require_share(owner: str, name: str, value: object) -> None:
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise OptionError(f"{owner}: `{name}` is {value!r}, expected a share from 0 to 1")


def _checked_edges(edges: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(edges, Mapping):
        raise OptionError(f"Bucket: `edges` is {edges!r}, expected a mapping of sizes to numbers")
    checked = {}
    for name, ends in edges.items():
        numbers = tuple(ends) if isinstance(ends, tuple | list) else ()
        if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
            raise OptionError(f"Bucket: edges of `{name}` are {ends!r}, expected integers >= 0")
        if any(a >= b for a, b in pairwise(numbers)):
            raise OptionError(f"Bucket: edges of `{name}` are {ends!r}, expected them ascending")
        checked[name] = numbers
    return checked
