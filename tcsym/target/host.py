# SPDX-License-Identifier: Apache-2.0
"""This machine's processor, as LLVM sees it. LLVM is loaded when that is first asked."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tcsym.process.system import processors
from tcsym.target.target import Target


class Processor(Struct, frozen=True):
    """LLVM's name of a processor and of the features it has."""

    name: str
    features: frozenset[str]


@lru_cache(None)
def processor() -> Processor:
    """This machine's. Loading LLVM takes a while; `runtime.processor` remembers the answer."""
    from tcsym.target.llvm import host

    return Processor(*host())


def runs_here(target: Target, here: Processor | None = None) -> bool:
    """True if this processor, or `here`, is of the target's family, and has its features."""
    is_of_family = target.triple.partition("-")[0] == processors()
    return is_of_family and (here or processor()).features.issuperset(target.features)
