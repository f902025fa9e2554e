"""Strategy -> dispatcher, which may be one that refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tcsym.dispatch.dispatcher import Dispatcher, Refused
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.errors import OptionError
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Strategy, Symbolic


def dispatcher_for(strategy: Strategy, making: Making, entrance: Entrance) -> Dispatcher:
    """What picks versions for the calls of one kernel. Loads only what the strategy needs."""
    try:
        return _chosen(strategy, making, entrance)
    except OptionError as why:
        return Refused(making, entrance, why)


def require_one_served(dispatchers: Sequence[Dispatcher]) -> None:
    """OptionError if the strategy can serve none of these kernels: those of one text."""
    refused = [d for d in dispatchers if isinstance(d, Refused)]
    if refused and len(refused) == len(dispatchers):
        raise refused[0].why


def _chosen(strategy: Strategy, making: Making, entrance: Entrance) -> Dispatcher:
    if making.substituted and not isinstance(strategy, Specialize):
        from tcsym.dispatch.substituted import Substituted, require_substituted

        if isinstance(strategy, Symbolic | Auto):
            return Substituted(making, entrance)
        require_substituted(making, strategy)
    match strategy:
        case Symbolic():
            return Dispatcher(making, entrance)
        case Specialize() if strategy.share:
            from tcsym.dispatch.adaptive import Adaptive

            return Adaptive(making, entrance, strategy)
        case Specialize():
            from tcsym.dispatch.points import OnDemand

            return OnDemand(making, entrance, strategy)
        case Bucket():
            from tcsym.dispatch.buckets import Buckets

            return Buckets(making, entrance, strategy)
        case Pad():
            from tcsym.dispatch.padded import PadOnDemand

            return PadOnDemand(making, entrance, strategy)
        case Auto():
            from tcsym.dispatch.adaptive import Adaptive

            return Adaptive(making, entrance, strategy)
        case _:
            assert_never(strategy)
