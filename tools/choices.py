# SPDX-License-Identifier: Apache-2.0
"""Programs, sizes -> the table of choices: the time of every plan that `choose` could have taken.

    ./dev choices --out build/choices.jsonl             until stopped; again: goes on where it was
    ./dev choices --out build/choices.jsonl --minutes 40 --target cpu:avx2 --only products

A line of the table is a program at some sizes: for each alternative its plans and the least of its
times, in nanoseconds of one thread's processor time. Alternatives are made by `Options.plan`, one
nest at a time; those that run the same plans at these sizes are one. Rounds go through all of them
in turn, so that what disturbs a machine disturbs all. Each program runs in a process of its own;
results are compared, and alternatives that give others are told and left out.

Costs are fitted to the table, and the regret of `choose` is read from it (`benchmarks/choices`).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.frontend.program import Program
from tcsym.frontend.sample import random_inputs
from tcsym.index.expr import Condition, condition_variables
from tcsym.index.values import evaluate, holds
from tcsym.ir.loops import THREADS
from tcsym.ir.text import kernel_text
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.target.names import resolve_target

MOST_WORK, MOST_ELEMENTS, LEAST_WORK = 3e7, 3e6, 256
MOST_FLOPS = 1e8  # of the suite's own sizes
MOST_NESTS, MOST_PLANS = 4, 16
SAMPLE_NS, ROUNDS = 300_000, 9
Sizes = dict[str, int]


class Drawn(Struct, frozen=True):
    """A program to measure. case: the suite's, which says how its sizes are drawn."""

    name: str
    source: str
    entry: str
    family: str
    case: Any = None


# ---- programs


def programs(seed: int) -> Iterator[Drawn]:
    """Those that were written first; then, without end, products and rows in turn."""
    return chain(_written(), _mixed(seed))


def _written() -> Iterator[Drawn]:
    from benchmarks.suite import CASES

    for case in CASES:
        yield Drawn(f"suite {case.name}", case.text, "", case.goal, case)
    for name in tcsym.library.names():
        yield Drawn(f"library {name}", tcsym.library.source(name), "", "library")


def _mixed(seed: int) -> Iterator[Drawn]:
    from tests.fuzz.generate import random_program

    for k in range(seed * 100_000, (seed + 1) * 100_000):
        rng = random.Random(k)
        yield _product(rng, k)
        yield _row(rng, k)
        yield _product(random.Random(k + 50_000), k + 50_000)
        drawn = random_program(random.Random(k), k % 2)
        yield Drawn(f"fuzz {k}", drawn.source, drawn.name, "fuzz")


def _product(rng: random.Random, k: int) -> Drawn:
    """A contraction: loops of the result, some of the left side, some of the right, some of both;
    sums; dimensions in any order, often in that of matrices."""
    left, right = rng.choice(("m", "m", "m", "mp")), rng.choice(("n", "n", "n", "nq"))
    both, sums = rng.choice(("", "", "b", "b", "bc")), rng.choice(("k", "k", "k", "kl"))
    shuffled = rng.random() < 0.5

    def order(*parts: str) -> str:
        parts = tuple(rng.sample(parts, len(parts))) if rng.random() < 0.5 else parts
        loops = "".join(parts)
        return "".join(rng.sample(loops, len(loops))) if shuffled else loops

    out, x, y = order(both, left, right), order(both, left, sums), order(both, sums, right)
    dtype = rng.choice(("float",) * 6 + ("double",))
    after = rng.choice(("",) * 6 + ("fmax(Z({0}), 0)", "tanh(Z({0}))"))
    epilogue = f" Z({','.join(out)}) = {after.format(','.join(out))}" if after else ""

    def tensor(name: str, loops: str) -> str:
        return f"{dtype}({','.join(loops.upper())}) {name}"

    term = f"X({','.join(x)}) * Y({','.join(y)})"
    head = f"def f({tensor('X', x)}, {tensor('Y', y)}) -> (Z)"
    source = f"{head} {{ Z({','.join(out)}) +=! {term}{epilogue} }}"
    return Drawn(f"product {k}", source, "", "products")


ROWS = (
    "S({0}) +=! X({1})",
    "S({0}) max=! X({1})",
    "S({0}) +=! X({1}) * X({1})",
    "S({0}) +=! exp(X({1}))",
    "S({0}) max=! X({1})  T({0}) +=! exp(X({1}) - S({0}))  Y({1}) = exp(X({1}) - S({0})) / T({0})",
    "S({0}) +=! X({1})  Y({1}) = X({1}) - S({0}) / W",
    "S({0}) +=! X({1}) * X({1})  Y({1}) = X({1}) * rsqrt(S({0}) + 1)",
    "Y({2}) = X({1}) + 1",
    "Y({2}) = X({1}) * tanh(X({1}))",
    "Y({2}) = X({1})",
    "Y({1}) = X({1}) * B({3}) + C({3})",
)


def _row(rng: random.Random, k: int) -> Drawn:
    """A map or sums over some dimensions of one operand, in any order."""
    loops = "abcw"[4 - rng.choice((2, 2, 3, 4)) :]
    n_summed = rng.choice((1, 1, 1, 2)) if len(loops) > 2 else 1
    summed = set(rng.sample(loops, n_summed)) if rng.random() < 0.4 else set(loops[-n_summed:])
    kept = "".join(v for v in loops if v not in summed)
    turned = "".join(rng.sample(loops, len(loops))) if rng.random() < 0.6 else loops
    body = rng.choice(ROWS)
    parts = [",".join(x) for x in (kept, loops, turned, loops[-1])]
    text = body.format(*parts)
    outputs = [name for name in "STY" if re.search(rf"\b{name}\(", text)]
    inputs = f"float({','.join(loops.upper())}) X"
    if "B(" in text:
        inputs += f", float({loops[-1].upper()}) B, float({loops[-1].upper()}) C"
    out = outputs[-1]
    return Drawn(f"row {k}", f"def f({inputs}) -> ({out}) {{ {text} }}", "", "rows")


# ---- alternatives


class Alternative(Struct, frozen=True):
    """`choices`: with the code for what few sizes need."""

    option: str
    options: tcsym.Options
    choices: tuple[Choice | Note, ...]


def alternatives(program: Program, target: str) -> list[Alternative]:
    """The default first, then each plan that changes the mapped loops."""
    dense = ("dense",) * (len(program.inputs) + len(program.outputs))
    scheduled: Any = None

    def mapped(options: tcsym.Options) -> Any:
        nonlocal scheduled
        stages = Lowering(program, resolve_target(target), options, {}, dense, (), {})  # type: ignore[arg-type]
        scheduled = scheduled or stages.scheduled()
        return stages.mapped(scheduled, whole=True)

    default = mapped(tcsym.Options())
    found = [Alternative("", tcsym.Options(), default.choices)]
    seen = {kernel_text(default.kernel)}
    names = dict.fromkeys(n for x in all_choices(default.choices) for n, _ in x.offered)
    nests = len({x.nest for x in default.choices if isinstance(x, Choice)})
    for nest in range(min(nests, MOST_NESTS)):
        for name in names:
            options = tcsym.Options(nests=((nest, "plan", name),))
            made = mapped(options)
            text = kernel_text(made.kernel)
            if text not in seen and len(found) < MOST_PLANS:
                seen.add(text)
                found.append(Alternative(f"{nest}.{name}", options, made.choices))
    return found


def all_choices(record: Iterable[Choice | Note]) -> Iterator[Choice]:
    for x in record:
        if isinstance(x, Choice):
            yield x
            for version in x.versions:
                if isinstance(version, Taken):
                    yield from all_choices(version.inside)


def plans_at(record: Iterable[Choice | Note], sizes: Mapping[str, int]) -> list[str]:
    """What runs at these sizes, as text: plans of all nests, each with those inside it."""
    values = {**sizes, THREADS: 1}
    found = []
    for x in record:
        if isinstance(x, Choice):
            versions = (t for t in x.versions if isinstance(t, Taken))
            taken = next((t for t in versions if _holds(t.when, values)), None)
            if taken is None:  # beside what another choice is of
                continue
            inside = plans_at(taken.inside, sizes)
            text = re.sub(r"(?<=\w)\.\d+\b", "", str(taken.plan))
            found.append(f"{text} [{'; '.join(inside)}]" if inside else text)
    return found


def _holds(c: Condition, values: Mapping[str, int]) -> bool:
    """Those that sizes do not tell count as true."""
    return not condition_variables(c) <= values.keys() or holds(c, values)


# ---- sizes


def sizes_of(drawn: Drawn, program: Program, n: int, rng: random.Random) -> Iterator[Sizes]:
    if drawn.case is not None:
        from benchmarks.sizes import random_rows, suite_rows

        few = [r for r in suite_rows(drawn.case) if drawn.case.n_flops(r.sizes) <= MOST_FLOPS]
        yield from (dict(r.sizes) for r in few)
        yield from (dict(r.sizes) for r in random_rows(drawn.case, n, rng.randrange(1 << 20)))
        return
    for _ in range(n):
        sizes = draw_sizes(program, rng)
        if sizes is not None:
            yield sizes


def draw_sizes(program: Program, rng: random.Random) -> Sizes | None:
    """Log-uniform, often round, of bounded work; None if there are none."""
    for _ in range(400):
        most = rng.choice((16, 64, 256, 1024, 4096))
        sizes = {n: _size(rng, most) for n in program.sizes}
        shapes = [t.shape for t in (*program.inputs, *program.outputs)]
        elements = [math.prod(evaluate(e, sizes) for e in shape) for shape in shapes]
        work = math.prod(sizes.values())
        if LEAST_WORK <= work <= MOST_WORK and max(elements) <= MOST_ELEMENTS and min(elements) > 0:
            return sizes
    return None


def _size(rng: random.Random, most: int) -> int:
    n = int(2 ** rng.uniform(0, math.log2(most)))
    if n > 16 and rng.random() < 0.4:
        n -= n % rng.choice((8, 16, 32))
    return max(1, n)


# ---- measuring


def measure(drawn: Drawn, target: str, n_sizes: int, seed: int) -> Iterator[dict[str, Any]]:
    module = analyse(drawn.source)
    entry = drawn.entry or next(iter(module))
    program = module[entry]
    found = alternatives(program, target)
    if len(found) < 2:
        return
    kernels = []
    for x in found:
        made = tcsym.define(drawn.source, target=target, strategy="symbolic", options=x.options)
        kernels.append(made[entry])
    rng = random.Random(f"{seed} {drawn.name}")
    for sizes in sizes_of(drawn, program, n_sizes, rng):
        by_plans: dict[str, tuple[Alternative, Any]] = {}
        for x, kernel in zip(found, kernels, strict=True):
            by_plans.setdefault(" | ".join(plans_at(x.choices, sizes)), (x, kernel))
        if len(by_plans) < 2:
            continue
        times = _times(program, [k for _, k in by_plans.values()], sizes, rng)
        yield {
            "program": drawn.name,
            "family": drawn.family,
            "source": drawn.source,
            "def": entry,
            "target": target,
            "sizes": sizes,
            "alternatives": [
                {"option": x.option, "plans": plans, "ns": ns}
                for (plans, (x, _)), ns in zip(by_plans.items(), times, strict=True)
                if ns is not None
            ],
        }


def _times(
    program: Program, kernels: Sequence[Any], sizes: Sizes, rng: random.Random
) -> list[float | None]:
    """Least nanoseconds of a call of each; None where the results are not those of the first."""
    inputs = random_inputs([(t.dtype, t.shape) for t in program.inputs], sizes, rng.randrange(99))
    results = [_tuple(k(*inputs)) for k in kernels]
    good = [all(map(_is_close, results[0], r)) for r in results]
    repeats = []
    for k in kernels:
        once = min(_sample(k, inputs, 1) for _ in range(3))
        repeats.append(max(1, min(1000, round(SAMPLE_NS / max(once, 100)))))
    least = [math.inf] * len(kernels)
    for _ in range(ROUNDS):
        for i in rng.sample(range(len(kernels)), len(kernels)):
            least[i] = min(least[i], _sample(kernels[i], inputs, repeats[i]))
    return [round(ns, 1) if ok else None for ns, ok in zip(least, good, strict=True)]


def _sample(kernel: Any, inputs: Sequence[Any], repeats: int) -> float:
    start = time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    for _ in range(repeats):
        kernel(*inputs)
    return (time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) - start) / repeats


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _is_close(a: Any, b: Any) -> bool:
    a, b = (np.nan_to_num(np.asarray(x, np.float64)) for x in (a, b))
    scale = max(1.0, float(np.abs(a).max(initial=0.0)))
    return bool(np.abs(a - b).max(initial=0.0) <= 1e-3 * scale)


# ---- command


def _work(drawn: Drawn, given: argparse.Namespace, out: str) -> None:
    tcsym.set_num_threads(1)
    with open(out, "a", encoding="utf-8") as file:
        try:
            for line in measure(drawn, given.target, given.sizes, given.seed):
                file.write(json.dumps(line) + "\n")
                file.flush()
        except tcsym.TCError as error:
            print(f"{drawn.name}: {error.kind}", file=sys.stderr)
        file.write(json.dumps({"done": drawn.name}) + "\n")


def main() -> int:
    given = _arguments()
    done = set()
    if given.out.exists():
        with given.out.open(encoding="utf-8") as file:
            done = {x["done"] for x in map(json.loads, file) if "done" in x}
    until = time.monotonic() + 60 * given.minutes
    context = multiprocessing.get_context("fork")
    for drawn in programs(given.seed):
        if time.monotonic() > until:
            break
        if drawn.name in done or (given.only and drawn.family not in given.only.split(",")):
            continue
        process = context.Process(target=_work, args=(drawn, given, str(given.out)))
        process.start()
        process.join(given.limit)
        if process.exitcode != 0:
            print(f"{drawn.name}: exit status {process.exitcode}", file=sys.stderr, flush=True)
            process.kill()
            process.join()
            with given.out.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps({"done": drawn.name}) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/choices.jsonl"))
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--only", default="", help="families: products, rows, fuzz, …")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--sizes", type=int, default=16, help="of each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120, help="seconds for a program")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
