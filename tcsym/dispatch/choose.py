"""Strategy -> dispatcher. Errors: OptionError where the strategy cannot serve the program."""

from __future__ import annotations

from typing import assert_never

from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Strategy, Symbolic


def dispatcher_for(strategy: Strategy, making: Making, entrance: Entrance) -> Dispatcher:
    """What picks versions for the calls of one kernel. Loads only what the strategy needs."""
    match strategy:
        case Symbolic():
            return Dispatcher(making, entrance)
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
            return Dispatcher(making, entrance)
        case _:
            assert_never(strategy)
