# SPDX-License-Identifier: Apache-2.0
"""What the demo says of a layer in the end: a newcomer has to understand it."""

from __future__ import annotations

import runpy
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo.py"


def test_the_last_screen_is_ten_lines_of_loops() -> None:
    demo = runpy.run_path(str(DEMO))
    lines = demo["fused_loops"](demo["LINEAR"]).splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) <= 100
    assert lines[2:8] == [
        "serial i in 0:B  (parallel)",
        "  serial j in 0:N  (parallel)",
        "    Y[i, j] = 0   # S0.init",
        "    serial k in 0:K  (reduction)",
        "      Y[i, j] += X[i, k] * W[k, j]   # S0",
        "    Y[i, j] = max(Y[i, j] + b[j], 0.0)   # S1",
    ]
    assert not any("$" in line for line in lines)
