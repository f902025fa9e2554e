# SPDX-License-Identifier: Apache-2.0
"""Writes tests/codegen/scalar/reference_values.json: functions at doubles, correctly rounded.

Needs mpmath. Run: python -m tools.reference_values
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import mpmath as mp

PATH = Path(__file__).parent.parent / "tests" / "codegen" / "scalar" / "reference_values.json"
N_RANDOM = 6
ANGLES = ((-1e5, 1e5), (1e5, 1e7), (1e20, 1e22), (1e290, 1e308))
HARD_ANGLES = [6381956970095103 * 2.0**797, 2.0**17, 2.0**1023]  # the first: nearly a quarter
# name: the function, ranges for random arguments, other arguments
CASES: dict[str, tuple[Callable, tuple, list[float]]] = {
    "cbrt": (
        lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        ((-9, 9), (1e-310, 1e-308), (1e299, 1e300)),
        [],
    ),
    "rcbrt": (lambda x: mp.sign(x) / mp.cbrt(abs(x)), ((-9, 9), (1e299, 1e300)), []),
    "exp10": (lambda x: mp.mpf(10) ** x, ((-1, 1), (-320, 308)), [2.0, 22.0, -307.9, -322.5]),
    "erfc": (mp.erfc, ((-1, 1), (0.2, 0.3), (-5, 26), (26, 27.2)), [1e-20, 0.25]),
    "erfcx": (
        lambda x: mp.exp(x * x) * mp.erfc(x),
        ((-1, 1), (-26, 26), (26, 40)),
        [-0.25, 1e3, 1e-20],
    ),
    "normcdf": (lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, ((-1, 1), (-37, 8)), [-38.4, 1e-20]),
    "sinpi": (lambda x: mp.sin(mp.pi * x), ((-9, 9), (-1e6, 1e6)), [0.5, 1e-300, 2.0**60]),
    "cospi": (lambda x: mp.cos(mp.pi * x), ((-9, 9), (-1e6, 1e6)), [1.0, 1e-300, 2.0**60]),
    "sin": (mp.sin, ANGLES, HARD_ANGLES),
    "cos": (mp.cos, ANGLES, HARD_ANGLES),
    "tan": (mp.tan, ANGLES, HARD_ANGLES),
    "tgamma": (
        mp.gamma,
        ((-8, 8), (8, 171), (-184, -8)),
        [5.0, 171.5, -171.0000000001, 1e-308, -1e-300, 7.999999999999999, 0.49999999999999994],
    ),
    "lgamma": (
        lambda x: mp.log(abs(mp.gamma(x))),
        ((0, 0.5), (0.5, 3), (3, 9), (9, 1e4), (-40, -10)),
        [1.0000001, 1.9999999, 1e-300, -1e-300, 7.999999999999999],
    ),
    "j0": (lambda x: mp.besselj(0, x), ((-2, 2), (3, 5), (6, 8), (12.5, 13.5)), [6.0, 1e-200, 1e5]),
    "j1": (lambda x: mp.besselj(1, x), ((-3, 3), (4.5, 6.5), (7.5, 9)), [6.0, 1e-200, 1e5]),
    "y0": (lambda x: mp.bessely(0, x), ((0, 0.6), (1.5, 3), (4.5, 6.5), (8, 9)), [1e-300, 1e5]),
    "y1": (lambda x: mp.bessely(1, x), ((0, 1.8), (3, 4.5), (6, 8)), [1e-300, 1e5]),
}


def main() -> None:
    rng = random.Random(1)
    found = {}
    mp.mp.dps = 400  # angles of 308 digits
    for name, (f, ranges, others) in CASES.items():
        xs = [rng.uniform(*r) for r in ranges for _ in range(N_RANDOM)] + others
        found[name] = [[x, float(f(mp.mpf(x)))] for x in xs]
    lines = [f"{json.dumps(name)}: {json.dumps(pairs)}" for name, pairs in found.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
