"""Strategies: which variants of a kernel exist and when they are made.

A strategy is a small frozen value; `define(strategy=)` takes one or its name. In this version every
kernel is symbolic: one compilation for all sizes (and one more per memory layout that turns up).
"""

from __future__ import annotations

from tcsym.errors import OptionError
from tcsym.records import dataclass


@dataclass(frozen=True, slots=True)
class Symbolic:
    """One kernel for all sizes."""


@dataclass(frozen=True, slots=True)
class Auto:
    """What tcsym thinks best; today the symbolic kernel."""


Strategy = Symbolic | Auto

_BY_NAME: dict[str, Strategy] = {"auto": Auto(), "symbolic": Symbolic()}
_LATER = ("specialize", "bucket", "pad")


def resolve_strategy(strategy: object) -> Strategy:
    """The strategy that a name or a strategy object means. Errors: OptionError."""
    if isinstance(strategy, Symbolic | Auto):
        return strategy
    if isinstance(strategy, str):
        if strategy in _BY_NAME:
            return _BY_NAME[strategy]
        if strategy in _LATER:
            raise OptionError(
                f'strategy "{strategy}" comes in a later version',
                hint='use "auto" or "symbolic": one kernel serves all sizes',
            )
    raise OptionError(
        f"unknown strategy {strategy!r}",
        hint=f"one of {', '.join((*_BY_NAME, *_LATER))}, or an object of tcsym.strategy",
    )
