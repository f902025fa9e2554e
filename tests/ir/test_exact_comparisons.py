# SPDX-License-Identifier: Apache-2.0
"""Guards that proofs use are computed as proofs take them (LANGUAGE E4)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.compiler import analyse
from tcsym.frontend.program import Compare, IndexValue
from tcsym.ir.loops import Kernel, Value
from tcsym.ir.traverse import map_node, map_value
from tcsym.ir.verify import InternalError, verify_exact
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.storage.place_allocations import place_allocations
from tcsym.types import DType

TEXT = """def w(float(N) X, size R) -> (Y) {
  Y(i) = R*i < N && i != 3 ? X(R*i) : 0.0 where i in 0:4
}"""


def narrowed(kernel: Kernel) -> Kernel:
    """As code was once made: values of indices have 32 bits."""

    def narrow(v: Value) -> Value:
        return replace(v, dtype=DType.INT32) if isinstance(v, IndexValue) else v

    def value(v: Value) -> Value:
        return map_value(v, narrow, lambda i: i) if isinstance(v, Compare) else v

    return replace(kernel, body=map_node(kernel.body, on_value=value))


def test_a_guard_in_fewer_bits_than_its_proof_is_refused() -> None:
    kernel = place_allocations(schedule_program(analyse(TEXT)["w"], Options(), {}).kernel)
    verify_exact(kernel, kernel)
    with pytest.raises(InternalError, match="may wrap"):
        verify_exact(kernel, narrowed(kernel))
