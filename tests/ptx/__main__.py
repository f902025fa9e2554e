"""Programs and the library's kernels, three ways: the reference, the twin, their PTX interpreted.

python -m tests.ptx [--only NAME] [--jobs N] [-v]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.ptx import device
from tests.ptx.cases import cases
from tests.ptx.steps import is_known


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.ptx")
    parser.add_argument("--only", default="", help="of names, what has this in it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", action="store_true", help="the slowest ones")
    given = parser.parse_args()
    names = [name for name in cases() if given.only in name]
    began = time.perf_counter()
    if given.jobs > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, mp_context=context) as workers:
            found = list(workers.map(_told, names, chunksize=2))
    else:
        found = [_told(name) for name in names]
    for x in found:
        if x.why:
            print(f"FAIL {x.name}: {x.why}")
    if given.v:
        for x in sorted(found, key=lambda x: -x.seconds)[:15]:
            print(f"  {x.seconds:6.2f} s {x.name}")
    texts, run = Counter[str](), set[str]()
    for x in found:
        texts.update(x.texts)
        run |= x.run
    unknown = sorted(x for x in texts if not is_known(x))
    if unknown:
        print(f"FAIL instructions that are not known: {', '.join(unknown)}")
    if given.v:
        print(f"not run: {', '.join(sorted(texts.keys() - run)) or 'none'}")
    print(f"{texts.total()} instructions of {len(texts)} kinds, of which {len(run)} were run")
    failed = sum(bool(x.why) for x in found)
    seconds = time.perf_counter() - began
    print(f"PTX: {len(found) - failed} of {len(found)} cases agree, {seconds:.0f} s")
    return 1 if failed or unknown or not found else 0


class Told(NamedTuple):
    """Of a case: what is wrong; names of instructions in its PTX, and of those that were run."""

    name: str
    why: str
    seconds: float
    texts: Mapping[str, int]
    run: frozenset[str]


def _told(name: str) -> Told:
    os.environ["TCSYM_CACHE"] = "0"
    device.IN_TEXTS.clear()
    device.RUN.clear()
    began = time.perf_counter()
    try:
        why = cases()[name]()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
    seconds = time.perf_counter() - began
    return Told(name, why, seconds, dict(device.IN_TEXTS), frozenset(device.RUN))


if __name__ == "__main__":
    sys.exit(main())
