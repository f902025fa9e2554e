# SPDX-License-Identifier: Apache-2.0
"""On a machine with a CUDA device and torch: whether results are right, how fast they come, what
launches cost, the acceptance programs; results in OUT as lines.jsonl and log.txt.

    ./dev gpu [OUT]                      with .venv, which needs torch
    ./dev gpu --pack DIR [--python 3.12] what a machine without network lacks, put into DIR
    ./dev gpu --from DIR [OUT]           there: with $PYTHON (python3), which has torch, and DIR
    ./dev gpu --rehearse [OUT]           on the emulated driver of the tests, at small sizes
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.gpu import pack

ROOT = pack.ROOT
SECONDS = 540.0
REHEARSED = 30.0  # times as long as on a device


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev gpu", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--pack", type=Path, metavar="DIR")
    parser.add_argument("--python", default="3.12", help="version that `--pack` is for")
    parser.add_argument("--with", dest="more", default="", metavar="llvmlite", help="packed, too")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR")
    parser.add_argument("--rehearse", action="store_true", help="on the emulated driver")
    parser.add_argument("--seconds", type=float, help="for all of it: 540")
    parser.add_argument("--groups", default="", metavar="maps,speeds", help="only these")
    parser.add_argument("--under", default="", metavar="'compute-sanitizer --tool memcheck'")
    given = parser.parse_args()
    if given.pack:
        pack.pack(given.pack, given.python, frozenset(filter(None, given.more.split(","))))
        return 0
    return run(given)


def run(given: argparse.Namespace) -> int:
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    paths, programs, begun = [ROOT], pack.programs_here(), list[subprocess.Popen[bytes]]()
    if not given.rehearse:
        probe = "import torch; assert torch.cuda.is_available(), 'torch sees no CUDA device'"
        begun.append(subprocess.Popen([sys.executable, "-c", probe]))
    if given.source:
        site = out.with_name(f"{out.name}-site")  # not in OUT: what lies there is carried home
        if not given.rehearse:  # else it is there, and others may run it
            build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
            begun.append(subprocess.Popen(build, cwd=ROOT))
        pack.unpack(given.source.resolve(), site)
        paths.insert(0, site)
        programs = given.source.resolve() / pack.PROGRAMS
    ended = [x.wait() for x in begun]
    if any(ended):
        return 1
    sys.path[:0] = map(str, paths)  # what is loaded from here on may be unpacked
    from tools.gpu.groups import GROUPS
    from tools.gpu.run import environment_with
    from tools.gpu.run import run as run_groups

    names = [n for n in given.groups.split(",") if n]
    names = names or [n for n, group in GROUPS.items() if group.is_usual]
    unknown = [n for n in names if n not in GROUPS]
    if unknown:
        raise SystemExit(f"gpu: no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    module = "tests.tools.rehearsal" if given.rehearse else "tools.gpu.group"
    command = [*given.under.split(), sys.executable, "-m", module]
    patience = REHEARSED if given.rehearse else 1.0
    seconds = given.seconds or SECONDS * patience
    environment = environment_with(*paths)
    held = run_groups(names, command, (out, programs), seconds, environment, patience)
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
