# SPDX-License-Identifier: Apache-2.0
"""Short turns at Python's lock: the interval is restored whoever ends last."""

from __future__ import annotations

import sys
import threading

import pytest

from tcsym.process.threads import TURN_SECONDS, ShortTurns
from tcsym.runtime.background import settle


def test_the_interval_is_what_it_was_once_all_have_ended() -> None:
    before = sys.getswitchinterval()
    first, second = ShortTurns(), ShortTurns()
    with first:
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
        second.__enter__()
    assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
    second.__exit__()
    assert sys.getswitchinterval() == before


def test_threads_may_overlap_in_any_order() -> None:
    before = sys.getswitchinterval()

    def work() -> None:
        for _ in range(200):
            with ShortTurns():
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sys.getswitchinterval() == before


def test_a_forked_child_starts_afresh() -> None:
    settle()  # work beside calls has short turns, too
    before = sys.getswitchinterval()
    ShortTurns().__enter__()
    ShortTurns.reset()
    assert sys.getswitchinterval() == before
