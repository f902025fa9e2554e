"""The values of this stage as text, for a few programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcsym.loop_ir_text import kernel_text
from tests.polyhedral.programs import scheduled

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
