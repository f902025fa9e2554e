# SPDX-License-Identifier: Apache-2.0
"""A kernel -> its operator in torch's registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcsym.operators.torch.operator import operator_of

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


def operator(kernel: Kernel) -> Any:
    """The `OpOverload` that stands for calls of a kernel in graphs, registered by asking for it.

    Calls register it by themselves. Ask where nothing was called yet: before `torch.export.load` of
    a program that was exported elsewhere, or for `torch.library.opcheck`.
    """
    return operator_of(kernel).packet.default
