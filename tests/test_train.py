# SPDX-License-Identifier: Apache-2.0
"""The training example: networks of strings learn what the same networks of torch learn."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.hosts import host

torch = host("torch")
pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
if not hasattr(torch.library, "register_vmap"):
    pytest.skip("torch is older than 2.5", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train.py"


@pytest.mark.parametrize("kind", [0, 1], ids=["convolutional", "recurrent"])
def test_losses_and_weights_are_torchs(kind: int) -> None:
    example = runpy.run_path(str(EXAMPLE))
    images, labels = example["digits"]()
    pair, shape = example["pairs"]()[kind]
    chosen = example["batches"](count=20, size=8, epochs=2)
    example["train"](pair, images.reshape(-1, *shape), labels, chosen)
    ours, theirs = pair.ours, pair.theirs
    assert len(ours.losses) == 6 and pair.difference < 1e-5
    assert ours.losses[-1] < ours.losses[0] - 0.01  # weights moved
    for mine, its in zip(ours.network.parameters(), theirs.network.parameters(), strict=True):
        torch.testing.assert_close(mine, its.reshape(mine.shape), rtol=1e-4, atol=1e-5)
