# SPDX-License-Identifier: Apache-2.0
"""What is installed for the peers, and by whose words."""

from __future__ import annotations

import pytest

from benchmarks import setup
from benchmarks.peers import PEERS
from benchmarks.setup import requirements


def test_the_user_may_choose_the_build_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCSYM_BENCH_TORCH", raising=False)
    assert requirements()["torch"][0].startswith("torch>=")
    monkeypatch.setenv("TCSYM_BENCH_TORCH", "torch==2.13.0 --no-deps")
    assert requirements()["torch"] == ["torch==2.13.0", "--no-deps"]


def test_every_peer_can_be_installed() -> None:
    installed = {word for words in requirements().values() for word in words}
    brought = {"jaxlib", "numpy", "tcsym"}  # by others, and by tcsym itself
    for peer in PEERS.values():
        for package in set(peer.packages) - brought:
            assert any(word.startswith(package) for word in installed), package


def test_an_unknown_peer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["setup", "cobol"])
    with pytest.raises(SystemExit, match="unknown peer `cobol`"):
        setup.main()
