# SPDX-License-Identifier: Apache-2.0
"""The values of this stage as text, for a few programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcsym.ir.text import kernel_text
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tests.polyhedral.programs import scheduled
from tests.targets import target_of

GOLDEN = Path(__file__).parent / "golden"
NAMES = (
    "matmul_bias_relu",
    "softmax",
    "layer_norm",
    "conv_bias_relu",
    "attention",
    "rnn",
    "half_matmul",
    "shift_in_place",
    "cholesky",
)


@pytest.mark.parametrize("name", NAMES)
def test_schedule_text(name: str, update_golden: bool) -> None:
    s = scheduled(name)
    text = f"{s.scop}\n\n{s.dependences}\n\n{s.tree}\n\n{kernel_text(s.kernel)}"
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.write_text(text)
    assert text == path.read_text()


# A processor of no machine in particular: mapped loops depend on the capacities of its caches.
AVX2 = target_of("avx2", (2**15, 2**18, 2**23))
MAPPED = (
    "matmul_bias_relu",
    "softmax",
    "shift_in_place",
    "cholesky",
    "total",
    "carried_state",
    "branches_cover",
    "parallel_time",
    "transposed_pair",
)


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_text(name: str, update_golden: bool) -> None:
    mapped = map_cpu(scheduled(name).kernel, AVX2.machine, Options())
    text = "\n".join([*(f"# {note}" for note in mapped.notes), kernel_text(mapped.kernel)])
    path = GOLDEN / "mapped" / f"{name}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
