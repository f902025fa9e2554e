# SPDX-License-Identifier: Apache-2.0
"""Gradients and operators of a few kernels of the library, by torch's own checks.

`python -m tests.operators.library` has them all.
"""

from __future__ import annotations

import pytest

from tests.hosts import host

torch = host("torch")
if not hasattr(torch.library, "register_vmap"):
    pytest.skip("torch is older than 2.5", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

from tests.operators.library import check  # noqa: E402  # which needs torch


@pytest.mark.parametrize("name", ["softmax", "max_pool_3x3s2", "embedding_bag"])
def test_gradients_and_operator(name: str) -> None:
    check(name)
