# SPDX-License-Identifier: Apache-2.0
"""`Target`: what a kernel is compiled for, by the name its user gave it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert

from tcsym.target.machine import Machine


class Target(Struct, frozen=True):
    """`triple`, `cpu` and `features` are LLVM's names; all else that code depends on: `machine`."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    machine: Machine

    @property
    def kind(self) -> str:
        """`cpu` of `cpu:avx2`: which back end compiles for it, and which device runs it."""
        return kind_of(self.name)

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Target:
        """The inverse of `msgspec.to_builtins`, by way of JSON."""
        return convert(facts, Target)


TWIN = "cuda:twin"


def kind_of(name: str | None) -> str:
    """The kind of the target of that name; without one it is a CPU."""
    if name == TWIN:
        return "twin"
    return (name or "cpu").partition(":")[0]
