# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz.derivatives --programs 1000 --seed 0`: derivatives of random programs.

Sizes are small, so that the interpreter runs all of it, and a second tries tens of programs
(`slopes`). Every float is a double, or with `--types` of other types, and beside differences then
stands the twin of doubles; machine code of some is beside the interpreter. With `--state FILE` a
run goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

import tcsym
from tcsym.batch.functional import functional_program
from tcsym.compiler import analyse
from tcsym.differentiate.derive import (
    Gradient,
    Recompute,
    gradient,
    gradient_program,
    saving_program,
    tangent_program,
)
from tcsym.differentiate.names import gradient_names
from tcsym.errors import DerivativeError, TCError, TCSyntaxError
from tcsym.frontend.program import Program
from tcsym.index.expr import Index
from tcsym.index.values import evaluate
from tcsym.types import NAMES, DType
from tests.differentiate.differences import bound, run
from tests.fuzz.calls import outcome
from tests.fuzz.compare import MANY_RUNS, MARGIN, RUNS, difference, tolerances
from tests.fuzz.decisions import decisions
from tests.fuzz.effort import drawn_effort
from tests.fuzz.generate import random_program
from tests.fuzz.model import Case
from tests.fuzz.perturb import EPS, perturbed
from tests.fuzz.reduce import reduce_case
from tests.fuzz.slopes import UNITS, Point, compared, transposed, wide

Array = Any
_FLOATS = re.compile(r"\b(float32|float16|bfloat16|half|float)\b")
_INTEGERS = [DType.INT32, DType.UINT8, DType.BOOL]
_F16, _BF16, _F32, _F64 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64
TYPES = {
    "double": [_F64] * 12 + _INTEGERS,
    "float": [_F32] * 12 + _INTEGERS,
    "half": [_F16] * 10 + [_F32] * 2 + _INTEGERS,
    "bfloat16": [_BF16] * 10 + [_F32] * 2 + _INTEGERS,
    "mixed": [_F16, _BF16, _F32, _F32, _F32, _F64, _F64, DType.INT64, DType.INT8, *_INTEGERS],
}
LEVELS = (0, 1, 1, 2, 2, 3)  # in turn
PATIENCE = 60  # seconds of the processor that a program may take
POINTS, ATTEMPTS = 2, 8
SECOND = 0.15  # of the gradients are differentiated again
SAVED_EACH = 100  # programs


class Verdict(Struct, frozen=True):
    """said: "right", "wrong: ...", or why there was nothing to compare."""

    said: str
    text: str = ""  # of what is wrong
    elements: int = 0  # of gradients compared
    points: tuple[str, ...] = ()  # what was said at each

    @property
    def is_wrong(self) -> bool:
        return self.said.startswith("wrong")

    @property
    def kind(self) -> str:
        return ":".join(self.said.split(":")[:2])


def main() -> int:
    arguments = _arguments()
    state = Path(arguments.state) if arguments.state else None
    totals: Counter[str] = Counter()
    seed = arguments.seed
    if state and state.exists():
        kept = json.loads(state.read_text())
        seed, totals = kept["seed"], Counter(kept["totals"])
    deadline = time.monotonic() + 60 * arguments.minutes
    start = time.process_time()
    last = seed + arguments.programs
    while time.monotonic() < deadline and seed < last:
        case = drawn_case(seed, arguments.types)
        found = watched(case, seed, arguments.compiled, arguments.types)
        _count(totals, case, found)
        if found.is_wrong:
            _show(case, seed, found, arguments)
        seed += 1
        if state and seed % SAVED_EACH == 0:
            _save(state, seed, totals, time.process_time() - start)
            start = time.process_time()
    if state:
        _save(state, seed, totals, time.process_time() - start)
    print(report(totals))
    return int(any(k.startswith("program: wrong") for k in totals))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.derivatives", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--programs", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=0, help="first seed; each program takes one")
    parser.add_argument("--state", default="", metavar="FILE", help="JSON: where to go on")
    parser.add_argument("--compiled", type=float, default=0.02, help="share tried as machine code")
    parser.add_argument("--types", default="double", choices=TYPES)
    parser.add_argument("--no-reduce", action="store_true")
    return parser.parse_args()


def _count(totals: Counter[str], case: Case, found: Verdict) -> None:
    said = found.said if found.said.startswith("no derivative") else found.kind
    totals["program: " + re.sub(r"(`\w+`, )*`\w+`", "`_`", said)] += 1
    totals["elements"] += found.elements
    totals.update(f"point: {p}" for p in found.points)
    if found.elements:
        totals.update(f"form: {form}" for form in {*case.forms})


def _save(state: Path, seed: int, totals: Counter[str], seconds: float) -> None:
    totals["seconds"] += int(seconds)
    beside = state.with_suffix(".new")
    beside.write_text(json.dumps({"seed": seed, "totals": totals}))
    beside.replace(state)


def report(totals: Mapping[str, int]) -> str:
    """Counts, by what they are of."""
    lines = sorted(totals.items(), key=lambda x: (x[0].split(":")[0], -x[1]))
    return "\n".join(f"{count:9}  {what}" for what, count in lines)


def _show(case: Case, seed: int, found: Verdict, arguments: argparse.Namespace) -> None:
    print(f"---- seed {seed} {found.said}\n{case.source}\n{found.text}", flush=True)
    if arguments.no_reduce:
        return

    def fails(candidate: Case) -> bool:
        return watched(candidate, seed, arguments.compiled, arguments.types).kind == found.kind

    small = reduce_case(case, fails)
    now = watched(small, seed, arguments.compiled, arguments.types)
    print(f"---- seed {seed} reduced: {now.said}\n{small.source}\n{now.text}", flush=True)


# ---- one program


def drawn_case(seed: int, types: str = "double") -> Case:
    drawn = TYPES[types]
    with patch("tests.fuzz.generate.DTYPES", drawn), patch("tests.fuzz.draft.DTYPES", drawn):
        return random_program(random.Random(seed), LEVELS[seed % len(LEVELS)])


def twin(x: Any) -> Any:
    """A program with every float as a double."""
    if isinstance(x, DType):
        return _F64 if x.is_float else x
    if isinstance(x, tuple):
        return tuple(map(twin, x))
    if not isinstance(x, Struct) or isinstance(x, Index):
        return x
    return replace(x, **{n: twin(getattr(x, n)) for n in x.__struct_fields__})


def _unit(program: Program) -> float:
    """The coarsest rounding of the floats that its text has."""
    return max([2.0**-53, *(EPS[NAMES[x]] for x in _FLOATS.findall(program.source))])


def watched(case: Case, seed: int, compiled: float = 0.0, types: str = "double") -> Verdict:
    try:
        with _patience():
            return tried(case, seed, compiled, types)
    except _TooLong:
        return Verdict("wrong: too long")


class _TooLong(BaseException):
    pass


@contextmanager
def _patience() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tried(case: Case, seed: int, compiled: float = 0.0, types: str = "double") -> Verdict:
    """Gradients of gradients, too, of some. compiled: share of programs tried as machine code."""
    try:
        is_one = types in ("double", "float")
        source = _FLOATS.sub(types, case.source) if is_one else case.source
        program = functional_program(analyse(source)[case.name])
    except TCError:
        return Verdict("not a program of these types")
    rng = np.random.default_rng(seed)
    is_compiled, is_twice = rng.random() < compiled, rng.random() < SECOND
    draws = _Draws(rng)
    return _tried(program, draws, is_compiled, is_twice)


def _tried(program: Program, draws: _Draws, is_compiled: bool, is_twice: bool) -> Verdict:
    found, back = _derived(program, draws, is_compiled)
    if found.said != "right" or back is None or not is_twice:
        return found
    if _unit(back) > _unit(program):
        return found  # a type that no one wrote: of a function of integers
    again, _ = _derived(back, draws, is_compiled)
    elements = found.elements + again.elements
    points = (*found.points, *(f"second: {p}" for p in again.points))
    if again.is_wrong:
        return Verdict(f"{again.said} (second)", f"{back.source}{again.text}", elements, points)
    return Verdict(found.said, "", elements, points)


class _Draws:
    """Sizes and values: ever larger sizes, as tries are refused."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.served: list[dict[str, int]] = []  # sizes of gradients that there was a call for

    def sizes(self, program: Program, attempt: int) -> dict[str, int]:
        served = [x for x in self.served if x.keys() >= {*program.sizes}]
        if served:
            return {n: served[attempt % len(served)][n] for n in program.sizes}
        low, high = [(0, 4), (1, 4), (1, 4), (2, 5), (3, 7), (4, 9)][min(attempt, 5)]
        found = {n: int(self.rng.integers(low, high + 1)) for n in program.sizes}
        given = {p.name: int(self.rng.integers(1, 4)) for p in program.size_parameters}
        return found | given

    def values(self, program: Program, sizes: Mapping[str, int], attempt: int) -> dict[str, Array]:
        """Floats beside 1, of both signs, or few that are often equal and zero; integers that are
        positions in anything not empty."""
        rng, arrays = self.rng, {}
        kind = rng.choice(["plain", "plain", "signed", "few"]) if attempt < 2 else "plain"
        least = max(1, min([n for n in sizes.values() if n > 0], default=1))
        for t in program.inputs:
            shape = tuple(evaluate(e, sizes) for e in t.shape)
            if not t.dtype.is_float:
                x = rng.integers(0, least, shape)
            elif kind == "few":
                x = rng.integers(-2, 4, shape) * 0.5
            else:
                x = rng.uniform(-2, 2, shape) if kind == "signed" else rng.uniform(0.5, 1.5, shape)
            arrays[t.name] = x.astype(t.dtype.numpy)
        return arrays

    def wrt(self, program: Program) -> list[str] | None:
        floats = [t.name for t in program.inputs if t.dtype.is_float]
        if len(floats) < 2 or self.rng.random() < 0.75:
            return None
        return [str(x) for x in self.rng.choice(floats, self.rng.integers(1, len(floats)), False)]


class _Made(Struct, frozen=True):
    program: Program
    twin: Program
    back: Program
    saving: Program  # `program`, if nothing is saved
    forth: Program
    called: dict[str, str]
    wrt: tuple[str, ...]


def _derived(program: Program, draws: _Draws, compiled: bool) -> tuple[Verdict, Program | None]:
    """What is to be said of a program's derivatives, and its gradient."""
    wrt = draws.wrt(program)
    recompute = list(Recompute)[draws.rng.integers(len(Recompute))]
    try:
        try:
            made = gradient(program, wrt, recompute)
        except DerivativeError:
            wrt = None
            made = gradient(program, wrt, recompute)
    except DerivativeError as error:
        return Verdict(f"no derivative: {error.message}"), None
    except Exception as error:
        return Verdict(f"wrong: {type(error).__name__}: {error}"), None
    try:
        whole = _made_of(program, made, wrt, recompute)
    except (DerivativeError, TCSyntaxError) as error:  # the second: beyond the limits of a text
        return Verdict(f"no derivative: {error.message}"), None
    except Exception as error:
        return Verdict(f"wrong: {type(error).__name__}: {error}"), None
    for x in (whole.back, whole.forth):
        if x.traps:
            return Verdict(f"wrong: warns: {x.traps[0].message}", x.source), None
    return _at_points(whole, draws, compiled), whole.back


def _made_of(
    program: Program, made: Gradient, wrt: list[str] | None, recompute: Recompute
) -> _Made:
    back = gradient_program(made)
    saving = saving_program(made) if made.saved else program
    again = Recompute.ALL if recompute is Recompute.ALL else Recompute.AUTO
    forth = tangent_program(program, wrt, again)
    names = tuple(t.name for t in made.whole.inputs)
    other = twin(program)
    other = program if other == program else other
    return _Made(program, other, back, saving, forth, gradient_names(program), names)


def _at_points(made: _Made, draws: _Draws, compiled: bool) -> Verdict:
    said: list[str] = []
    elements = 0
    text = f"{made.back.source}\n{made.forth.source}"
    for attempt in range(ATTEMPTS):
        if sum(x in ("right", "at a kink") for x in said) >= POINTS and "right" in said:
            break
        sizes = draws.sizes(made.program, attempt)
        given = draws.values(made.program, sizes, attempt)
        try:
            results = run(made.program, given, sizes)
        except TCError:
            said.append("refused at these sizes")
            continue
        try:
            point = Point(given, {}, {}, sizes)
            found, count = _at(made, point, results, draws, compiled and not elements)
        except Exception as error:
            found, count = f"wrong: {type(error).__name__}: {error}", 0
        said.append(found)
        elements += count
        if found.startswith("wrong"):
            details = f"sizes {sizes}, given {given}"
            return Verdict(found, f"{text}\n{details}", elements, ())
    best = "right" if "right" in said else said[-1]
    return Verdict(best, "", elements, tuple(said))


class _Chain(Struct, frozen=True):
    """A program, and its derivatives from there, along one direction. weights: as in `Point`."""

    made: _Made
    given: Mapping[str, Array]
    sizes: Mapping[str, int]
    along: Mapping[str, Array]
    weights: Mapping[str, Array]

    def known(self, of: Callable[[Program], Program]) -> dict[str, Array]:
        """What a gradient may take."""
        made = self.made
        found = _run(of(made.program), self.given, self.sizes)
        if made.saving is not made.program:
            found |= _run(of(made.saving), self.given, self.sizes)
        return {**self.given, **found, **self.called(self.weights)}

    def called(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {self.made.called[n]: x for n, x in arrays.items()}

    def slopes(self, of: Callable[[Program], Program]) -> tuple[dict[str, Array], dict[str, Array]]:
        known, called = self.known(of), self.made.called
        back = _run(of(self.made.back), known, self.sizes)
        forth = _run(of(self.made.forth), {**known, **self.called(self.along)}, self.sizes)
        return {n: back[called[n]] for n in self.along}, {n: forth[called[n]] for n in self.weights}

    def noise(self, point: Point) -> tuple[float, float]:
        """As `Noise`. What halves lose to underflow is there with doubles only."""
        try:
            found = [transposed(point, *self.slopes(_itself))]
            for k in range(RUNS):
                with perturbed(k):
                    found.append(transposed(point, *self.slopes(_itself)))
            if point.unit > EPS[_F32]:
                found.append(transposed(point, *self.slopes(twin)))
        except TCError:
            return np.inf, np.inf
        apart = np.ptp([one - same for one, same, _ in found])
        return MARGIN * float(apart), MARGIN * float(np.ptp([same for _, same, _ in found]))


def _at(
    made: _Made, start: Point, results: Mapping[str, Array], draws: _Draws, compiled: bool
) -> tuple[str, int]:
    """What is said along a direction drawn, and of how many elements."""
    given, called, rng = start.given, made.called, draws.rng
    own = [p.name for p in made.back.size_parameters if p.name not in start.sizes]
    sizes = {**start.sizes, **{n: int(rng.integers(1, 4)) for n in own}}  # steps of segments

    def drawn(x: Array) -> Array:
        return rng.uniform(-1, 1, x.shape).astype(x.dtype)

    outputs = [t.name for t in made.program.outputs if called.get(t.name) in _takes(made.back)]
    finite = {n: np.isfinite(results[n]) for n in outputs}
    weights = {n: np.where(finite[n], drawn(results[n]), results[n].dtype.type(0)) for n in outputs}
    chain = _Chain(made, given, sizes, {n: drawn(given[n]) for n in made.wrt}, weights)
    unit = max(map(_unit, (made.program, made.back, made.forth)))
    taken = chain.known(_itself)
    near = {"rtol": 16 * UNITS * unit, "atol": 16 * UNITS * unit}  # products are taken apart
    for n, y in results.items():
        if not np.allclose(wide(taken[n]), wide(y), **near, equal_nan=True):
            return f"wrong: saved {n} differs", 0
    draws.served.append({**_of(made.back, sizes), **bound(made.back, taken)})
    if compiled and (said := _compiled(made.back, taken, sizes)):
        return f"wrong: machine code: {said}", 0
    point = replace(start, along=chain.along, weights=weights, unit=unit)
    gradients, tangents = chain.slopes(_itself)
    said = compared(made.twin, point, gradients, tangents, lambda: chain.noise(point))
    if said.startswith("wrong: differences"):
        other = decisions(lambda: run(made.program, given, start.sizes))
        if other[0] != decisions(lambda: point.run(made.twin, 0.0))[0]:
            said = "at a kink"
    return said, sum(x.size for x in gradients.values()) if said == "right" else 0


def _itself(program: Program) -> Program:
    return program


def _run(
    program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, Array]:
    given = {t.name: arrays[t.name].astype(t.dtype.numpy) for t in program.inputs}
    return run(program, given, _of(program, sizes))


def _takes(program: Program) -> set[str]:
    return {t.name for t in program.inputs}


def _of(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    return {n: v for n, v in sizes.items() if n in program.sizes}


def _compiled(program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> str:
    """Where machine code is not what the interpreter is."""
    free = {n: v for n, v in sizes.items() if n in program.free_sizes}
    names = [t.name for t in program.outputs]
    given = {t.name: arrays[t.name] for t in program.inputs}
    with drawn_effort(random.Random(program.source)):
        kernel = tcsym.define(program.source)[program.name]
        want = outcome(kernel.reference, names, given, free)
        if isinstance(want, TCError):
            return str(want)
        got = outcome(kernel, names, given, free)
        for runs in (RUNS, MANY_RUNS):
            allowed = tolerances(kernel.reference, want, given, free, 0, runs)
            kind, details = difference(got, want, allowed)
            if not kind:
                return ""
    return f"{kind}: {details}"


if __name__ == "__main__":
    raise SystemExit(main())
