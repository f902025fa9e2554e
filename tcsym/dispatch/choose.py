# SPDX-License-Identifier: Apache-2.0
"""Strategy -> policy, which may be one that refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy, Refused
from tcsym.errors import OptionError
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Strategy, Symbolic


def policy_for(strategy: Strategy, making: Making) -> Policy:
    """What proposes versions for the calls of one kernel. Loads only what the strategy needs."""
    try:
        return _chosen(strategy, making)
    except OptionError as why:
        return Refused(making, why)


def require_one_served(policies: Sequence[Policy]) -> None:
    """OptionError if the strategy can serve none of these kernels: those of one text."""
    refusals = [p.refusal for p in policies if p.refusal is not None]
    if refusals and len(refusals) == len(policies):
        raise refusals[0]


def _chosen(strategy: Strategy, making: Making) -> Policy:
    if making.substituted and not isinstance(strategy, Specialize):
        from tcsym.dispatch.substituted import Substituted, require_substituted

        if isinstance(strategy, Symbolic | Auto):
            return Substituted(making)
        require_substituted(making, strategy)
    if isinstance(strategy, Auto) and making.shaping_left and not making.plan.device.waits:
        from tcsym.dispatch.kept_sizes import FirstValues

        return FirstValues(making)
    if not making.plan.device.waits:
        strategy = _without_clock(strategy)
    match strategy:
        case Symbolic():
            return Policy(making)
        case Specialize() if strategy.share:
            from tcsym.dispatch.adaptive import Adaptive

            return Adaptive(making, strategy)
        case Specialize():
            from tcsym.dispatch.points import OnDemand

            return OnDemand(making, strategy)
        case Bucket():
            from tcsym.dispatch.buckets import Buckets

            return Buckets(making, strategy)
        case Pad():
            from tcsym.dispatch.padded import PadOnDemand

            return PadOnDemand(making, strategy)
        case Auto():
            from tcsym.dispatch.adaptive import Adaptive

            return Adaptive(making, strategy)
        case _:
            assert_never(strategy)


def _without_clock(strategy: Strategy) -> Strategy:
    """In place of one that times calls, or copies arrays, where calls only begin kernels."""
    match strategy:
        case Auto():
            return Symbolic()
        case Specialize():
            return replace(strategy, background=False)
        case Pad():
            raise OptionError("strategy Pad copies arrays, which calls on a device do not")
        case Symbolic() | Bucket():
            return strategy
        case _:
            assert_never(strategy)
