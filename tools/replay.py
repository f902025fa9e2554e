# SPDX-License-Identifier: Apache-2.0
"""What two commits make of the same programs: mapped loops and LLVM IR, compared as text.

    ./dev replay              the last commit beside the files as they are
    ./dev replay main~3       another commit beside them
    ./dev replay --programs 60 --show 5

A change that only moves code leaves every text as it is. For one that means to change some, the
first lines that differ are shown for a few of them, and the others are counted by program.

Programs are those of the differential tests, the benchmark, the library and the fuzzer; each is
compiled for three targets, with drawn options, and with its sizes substituted. Both commits are
asked through the public interface only (`define` and `Kernel.explain`), so that what is inside them
may differ as it likes. The texts of a commit are kept in build/replay and used again.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any

STAGES = ("mapped", "llvm")
TARGETS = ("cpu:avx512", "cpu:avx2", "cpu:novector")
TREE = Path(__file__).resolve().parent.parent
KEPT = TREE / "build" / "replay"
Program = tuple[str, str, str, dict[str, int]]  # name, text, def ("": the first), sizes
Case = dict[str, Any]  # name, source, entry, settings of `define`


# ---- what is compiled


def all_cases(n_programs: int) -> list[Case]:
    """Every program in every way of compiling it."""
    from tests.fuzz.thresholds import random_options

    cases = []
    for seed, (name, source, entry, sizes) in enumerate(islice(programs(), n_programs)):
        rng = random.Random(seed)
        ways: dict[str, dict[str, Any]] = {t.partition(":")[2]: {"target": t} for t in TARGETS}
        drawn = random_options(rng).changed()
        ways["drawn options"] = {"target": rng.choice(TARGETS), "options": drawn}
        if sizes:
            bind = rng.choice(("before", "after"))
            target = rng.choice(TARGETS)
            ways[bind] = {"target": target, "sizes": sizes, "options": {"bind": bind}}
        for way, settings in ways.items():
            about = {"name": f"{name}, {way}", "source": source, "entry": entry}
            cases.append({**about, "settings": settings})
    return cases


def programs() -> Iterator[Program]:
    """Without end: those that were written first, then what the fuzzer draws."""
    return chain(_written_programs(), _drawn_programs())


def _written_programs() -> Iterator[Program]:
    from benchmarks.suite import CASES
    from tcsym import library
    from tests.differential.corpus import CORPUS

    for name, test in CORPUS.items():
        yield f"test {name}", test.source, test.extra.get("entry", ""), dict(test.sizes[-1])
    for case in CASES:
        yield f"suite {case.name}", case.text, "", dict(next(iter(case.sizes.values())))
    for name in library.names():
        yield f"library {name}", library.source(name), "", {}


def _drawn_programs() -> Iterator[Program]:
    from tests.fuzz.generate import random_program

    seed = 0
    while True:
        case = random_program(random.Random(seed), seed % 4)
        yield f"fuzz {seed}", case.source, case.name, dict(case.sizes[0])
        seed += 1


# ---- one side: run with the other tree first in PYTHONPATH


def write_texts(cases: Path, out: Path, jobs: int) -> None:
    """The texts of all cases, in their order, one JSON value a line."""
    given = json.loads(cases.read_text())
    with gzip.open(out, "wt", compresslevel=3) as file, ProcessPoolExecutor(jobs) as pool:
        for k, texts in enumerate(pool.map(texts_of, given, chunksize=8)):
            file.write(json.dumps(texts) + "\n")
            if k % 50 == 49 and sys.stderr.isatty():
                print(f"\r{k + 1} of {len(given)}", end="", file=sys.stderr, flush=True)


def texts_of(case: Case) -> dict[str, str]:
    """The text of each stage. An error is a text, too."""
    import tcsym

    settings = dict(case["settings"])
    texts = dict[str, str]()
    try:
        settings["options"] = tcsym.Options(**settings.get("options", {}))
        module = tcsym.define(case["source"], strategy="symbolic", **settings)
        kernel = module[case["entry"] or next(iter(module))]
        for stage in STAGES:
            texts[stage] = kernel.explain(stage)
    except Exception as error:
        texts["error"] = f"{type(error).__name__}: {error}"
    return texts


# ---- both sides


def main() -> int:
    given = _arguments()
    if given.texts:
        write_texts(*map(Path, given.texts), given.jobs)
        return 0
    commit = _git("rev-parse", "--verify", f"{given.base}^{{commit}}")
    cases = all_cases(given.programs)
    text = json.dumps(cases, sort_keys=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    key = f"{commit[:12]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    before = KEPT / f"{key}.jsonl.gz"
    with tempfile.TemporaryDirectory() as folder:
        listed, after = Path(folder, "cases.json"), Path(folder, "after.jsonl.gz")
        listed.write_text(text)
        if not before.exists():
            _texts_of_commit(commit, listed, before, Path(folder), given.jobs)
        _run_side(TREE, listed, after, given.jobs)
        return compare(cases, before, after, given.show)


def _texts_of_commit(commit: str, listed: Path, out: Path, folder: Path, jobs: int) -> None:
    tree, unfinished = folder / "tree", out.with_suffix(".unfinished")
    tree.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=TREE, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=tree, check=True, input=archive.stdout)
    _run_side(tree, listed, unfinished, jobs)
    unfinished.replace(out)


def _run_side(tree: Path, listed: Path, out: Path, jobs: int) -> None:
    around = {**os.environ, "PYTHONPATH": str(tree), "TCSYM_CACHE": "0", "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--jobs", str(jobs), "--texts", str(listed), str(out)]
    subprocess.run(command, env=around, check=True, cwd=tree)


def compare(cases: list[Case], before: Path, after: Path, n_shown: int) -> int:
    """Print what differs; 1 if anything does."""
    differing = Counter[str]()
    n_errors = n_different = 0
    with gzip.open(before, "rt") as old_lines, gzip.open(after, "rt") as new_lines:
        for case, old_line, new_line in zip(cases, old_lines, new_lines, strict=True):
            old, new = json.loads(old_line), json.loads(new_line)
            n_errors += "error" in new
            if old == new:
                continue
            n_different += 1
            differing[case["name"].partition(",")[0]] += 1
            if n_different <= n_shown:
                _show(case, old, new)
    print(f"{len(cases)} texts of {len(STAGES)} stages, {n_errors} of them errors: ", end="")
    print(f"{n_different} differ" if n_different else "all the same")
    for name, count in differing.most_common():
        print(f"{count:6}  {name}")
    return 1 if n_different else 0


def _show(case: Case, old: dict[str, str], new: dict[str, str]) -> None:
    stage = next(s for s in (*STAGES, "error") if old.get(s) != new.get(s))
    print(f"==== {case['name']}: {stage}, {case['settings']}\n{case['source']}")
    lines = [x.get(stage, "").splitlines() for x in (old, new)]
    for line in islice(difflib.unified_diff(*lines, "before", "after", lineterm="", n=1), 40):
        print(line[:160])


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=TREE, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"replay: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev replay", description=__doc__.partition("\n")[0])
    parser.add_argument("base", nargs="?", default="HEAD", help="the commit to compare with")
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--show", type=int, default=3, help="differences shown in full")
    parser.add_argument("--texts", nargs=2, metavar=("CASES", "OUT"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
