"""Programs and the library's kernels, three ways: the reference, the twin, their PTX interpreted.

    python -m tests.ptx [--only NAME] [--jobs N] [-v]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.ptx.cases import cases


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
    for name, why, _ in found:
        if why:
            print(f"FAIL {name}: {why}")
    if given.v:
        for name, _, seconds in sorted(found, key=lambda x: -x[2])[:15]:
            print(f"  {seconds:6.2f} s {name}")
    failed = sum(bool(why) for _, why, _ in found)
    seconds = time.perf_counter() - began
    print(f"PTX: {len(found) - failed} of {len(found)} cases agree, {seconds:.0f} s")
    return 1 if failed or not found else 0


def _told(name: str) -> tuple[str, str, float]:
    """Name, what is wrong, seconds."""
    os.environ["TCSYM_CACHE"] = "0"
    began = time.perf_counter()
    try:
        why = cases()[name]()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
    return name, why, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
