# SPDX-License-Identifier: Apache-2.0
"""What code needs of a target beyond what all targets share: memory, launches, own instructions.

Shared code calls these; what implements them (`tcsym.codegen.cpu`) may use all of shared code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from tcsym.codegen.scalar.values import Val
from tcsym.frontend.program import Call, Read
from tcsym.ir.device import OnDevice
from tcsym.ir.loops import (
    Buffer,
    Kernel,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
)
from tcsym.ir.regions import Region
from tcsym.target.machine import Machine

if TYPE_CHECKING:
    from tcsym.codegen.scalar.addresses import Address
    from tcsym.codegen.scalar.context import Context


class Memory(Protocol):
    """How a function loads and stores: the lanes of an access, and their order."""

    def of_another(self) -> Memory:
        """That of another function of the kernel."""

    def load(self, context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
        """The element, or the lanes, at an address; lanes outside `mask` are not touched."""

    def store(
        self,
        context: Context,
        at: Address,
        buffer: Buffer,
        value: Val,
        mask: Val | None,
        streamed: int = 0,
    ) -> None:
        """Write a value of the element's memory type; lanes outside `mask` stay as they are.

        `streamed`: bypass the caches, if not 0; the bytes of which the address is a multiple.
        """

    def read(self, context: Context, r: Read) -> Val | None:
        """A read, in its register type, for which the target has a way of its own."""

    def assign(self, context: Context, n: Store | Update) -> None:
        """The statement, by `scalar.stores`."""

    def block(self, context: Context, body: tuple[Node, ...]) -> None:
        """The statements in order, some perhaps as one."""

    def finish(self, context: Context, body: Node) -> None:
        """At the end of a function that did `body`: what follows it sees its stores."""


class Launcher(Protocol):
    """How regions run."""

    def launch(self, context: Context, region: Region) -> None:
        """In the host: all iterations, done when it returns. Writes the function, too."""


class Intrinsics(Protocol):
    """Instructions that not every target has."""

    def value(self, context: Context, v: Call) -> Val | None:
        """A function that is no built-in of the language; None if it is one."""

    def term(self, context: Context, n: Update) -> Callable[[Val], Val] | None:
        """Adds the value of `n` to an element, if one instruction computes and adds it."""

    def shuffle(self, context: Context, v: Shuffle) -> Val:
        """The value of another thread of the warp."""

    def perform(self, context: Context, n: TransposeBlock | OnDevice) -> None:
        """The statement."""


class Backend(Struct, frozen=True):
    """A target's. `memory`: that of a kernel's first function.

    has_lanes: it has vectors; else iterations of vector loops are copies side by side.
    """

    memory: Callable[[Kernel, Machine], Memory]
    launcher: Launcher
    intrinsics: Intrinsics
    has_lanes: bool = True
