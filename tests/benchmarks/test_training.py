# SPDX-License-Identifier: Apache-2.0
"""Backward passes of the suite: which there are, and what is right for one of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.suite import BY_NAME, TRAINING
from benchmarks.suite.training import base_name


def test_every_backward_pass_is_of_a_kernel() -> None:
    assert {base_name(c.name) for c in TRAINING} <= BY_NAME.keys()
    assert all(label.endswith(" backward") for c in TRAINING for label in c.sizes)
    assert "int8_matmul backward" not in BY_NAME


@pytest.mark.usefixtures("torch")
def test_what_is_right_is_a_gradient() -> None:
    case = BY_NAME["mm backward"]
    arrays = case.arrays({"M": 2, "N": 3, "K": 4})
    dA, dB = case.reference(*arrays)
    dC = np.random.default_rng(1).standard_normal((2, 3), dtype=np.float32)
    np.testing.assert_allclose(dA, dC @ arrays[1].T, rtol=1e-5)
    np.testing.assert_allclose(dB, arrays[0].T @ dC, rtol=1e-5)
