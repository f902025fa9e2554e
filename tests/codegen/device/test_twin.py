# SPDX-License-Identifier: Apache-2.0
"""Kernels of devices, written by hand, run in the twin: all that threads do together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.codegen import emit
from tcsym.codegen.object_code import object_code
from tcsym.errors import TargetError
from tcsym.ir.compiled import Compiled
from tcsym.ir.device import WaitCopies
from tcsym.ir.loops import Kernel
from tcsym.ir.traverse import map_node
from tcsym.runtime.jit import load
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.target.names import resolve_target
from tests.ir.device_kernels import CASES, Case

pytestmark = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
TWIN = resolve_target("cuda:twin")


def run(kernel: Kernel, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> int:
    made = emit(kernel, TWIN, 1)
    code = object_code(made.ir_text, TWIN)
    given = kernel.sizes, kernel.arguments, made.faults, made.shared_bytes, made.private_bytes
    pointers = [arrays[n].ctypes.data for n in kernel.arguments]
    return load(Compiled(code, *given)).run(pointers, [sizes[n] for n in kernel.sizes], 1)


def require_right(case: Case) -> None:
    *_, result = case.kernel.arguments
    for sizes in case.sizes:
        arrays = case.arrays(sizes)
        want = case.result(**arrays)
        assert run(case.kernel, arrays, sizes) == 0
        np.testing.assert_allclose(arrays[result], want, case.tolerance, case.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    require_right(CASES[name])


def test_a_copy_that_nothing_waits_for_is_told() -> None:
    case = CASES["pipelined_3"]
    body = map_node(case.kernel.body, lambda n: None if isinstance(n, WaitCopies) else n)
    kernel = replace(case.kernel, body=body)
    with pytest.raises(TargetError, match="copy to it is on its way"):
        run(kernel, case.arrays(case.sizes[0]), case.sizes[0])
