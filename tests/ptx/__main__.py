# SPDX-License-Identifier: Apache-2.0
"""Programs and the library's kernels, three ways: the reference, the twin, their PTX interpreted.

python -m tests.ptx [--only NAME] [--jobs N] [-v]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.ptx.cases import cases, runner
from tests.ptx.steps import is_known
from tests.ptx.told import told


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.ptx")
    parser.add_argument("--only", default="", help="of names, what has this in it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", action="store_true", help="the slowest ones")
    given = parser.parse_args()
    if runner() is None:
        print("no acceptance programs (set TCSYM_PROGRAMS to their folder)")
    names = [name for name in cases() if given.only in name]
    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    found = []
    with ProcessPoolExecutor(given.jobs, mp_context=context) as workers:
        for x in workers.map(told, names, chunksize=2):
            found.append(x)
            if x.why:
                print(f"FAIL {x.name}: {x.why}", flush=True)
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


if __name__ == "__main__":
    sys.exit(main())
