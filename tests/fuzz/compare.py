# SPDX-License-Identifier: Apache-2.0
"""Case -> differences between compiled kernels and the interpreter.

How far they may differ is not guessed from constants: `tolerances` runs the reference again with
every rounding perturbed (`perturb`), so that a reduction's length, cancellation, half types and
tests on rounded values all widen the bound where, and only where, they matter.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.errors import TCError
from tests.fuzz import memory
from tests.fuzz.cached import Stale, cached_kernels
from tests.fuzz.calls import Outcome, Results, Spoilt, called, called_again, outcome
from tests.fuzz.device_tiles import small_tiles
from tests.fuzz.effort import drawn_effort, usual_effort
from tests.fuzz.model import Case, Sizes
from tests.fuzz.modes import drawn_binding, drawn_modes, is_tried, kernel, kernel_key
from tests.fuzz.perturb import perturbed
from tests.fuzz.thresholds import random_thresholds
from tests.fuzz.updates import in_place, results_of
from tests.fuzz.wrong import refused_wrongly
from tests.guarded import guarded
from tests.ptx.device import interpreted

RUNS, MANY_RUNS = 4, 64
MARGIN = 4.0


class Failure(Struct, frozen=True):
    """`kind` says what went wrong, without figures: the reducer keeps it the same."""

    kind: str
    mode: str
    sizes: dict[str, int]
    details: str


class Report(Struct, frozen=True):
    elements: int = 0
    errors: int = 0  # calls for which all sides raised the same error
    rejected: str = ""  # kind of the compile-time error, if the program is none
    failures: tuple[Failure, ...] = ()


def tolerances(
    reference: Any,
    exact: Results,
    inputs: Mapping[str, Any],
    sizes: Sizes,
    seed: int,
    runs: int = RUNS,
) -> Results:
    """Largest allowed difference for each element; NaN where the value is undetermined."""
    spread = {name: np.zeros(np.shape(a)) for name, a in exact.items()}
    for run in range(runs):
        with perturbed(seed + run):
            other = outcome(reference, list(exact), inputs, sizes)
        if isinstance(other, TCError):  # a test on a rounded value decides whether there is one
            return {name: np.full(np.shape(a), np.nan) for name, a in exact.items()}
        for name, a in exact.items():
            spread[name] = np.maximum(spread[name], _distance(a, other[name]))
    return {name: _allowed(exact[name], spread[name]) for name in exact}


def _distance(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """|a - b|; 0 where equal or both NaN, infinite where only one is finite."""
    if a.dtype.kind in "biu":
        return np.where(a == b, 0.0, np.inf)
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        return np.where(same, 0.0, np.where(np.isfinite(x - y), np.abs(x - y), np.inf))


def _allowed(a: NDArray[Any], spread: NDArray[Any]) -> NDArray[Any]:
    if a.dtype.kind in "biu":
        return np.where(spread == 0, 0.0, np.nan)
    eps, smallest = _ROUNDING[a.dtype.name]
    spread = _pooled(spread)
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(a), np.abs(a.astype(np.float64)), 0.0)
        # a tensor in which nothing moved is made of exact operations
        floor = smallest + (8 * eps * size if np.any(spread) else 0.0)
        return np.where(np.isinf(spread), np.nan, MARGIN * spread + floor)


def _pooled(spread: NDArray[Any]) -> NDArray[Any]:
    """No element that moved is bound by less than is usual in its tensor.

    In large tensors the few runs cancel at some element by chance, where compiled code does not.
    """
    moved = spread[(spread > 0) & np.isfinite(spread)]
    if not moved.size:
        return spread
    return np.where(spread > 0, np.maximum(spread, 1.5 * np.median(moved)), spread)


# a unit in the last place of 1, and what is lost among denormals on the way
_ROUNDING = {
    "float16": (2.0**-10, 2.0**-23),
    "bfloat16": (2.0**-7, 2.0**-125),
    "float32": (2.0**-23, 2.0**-125),
    "float64": (2.0**-52, 2.0**-1070),
}


# ---- comparison


def difference(got: Outcome, want: Outcome, allowed: Results) -> tuple[str, str]:
    """What differs, as (kind, details); ('', '') if nothing does."""
    if isinstance(want, TCError) or isinstance(got, TCError):
        kinds = [x.kind if isinstance(x, TCError) else "results" for x in (got, want)]
        if kinds[0] == kinds[1]:
            return "", ""
        return f"{kinds[0]} instead of {kinds[1]}", f"got {got}\nwant {want}"
    for name, w in want.items():
        g = got[name]
        if g.shape != w.shape or g.dtype != w.dtype:
            described = f"{g.dtype}{g.shape} instead of {w.dtype}{w.shape}"
            return "type or shape", f"`{name}` is {described}"
        with np.errstate(invalid="ignore"):
            wrong = _distance(g, w) > allowed[name]
        if np.any(wrong):
            return "values", _worst(name, g, w, allowed[name], wrong)
    return "", ""


def _worst(
    name: str, got: NDArray[Any], want: NDArray[Any], allowed: NDArray[Any], wrong: NDArray[Any]
) -> str:
    place = tuple(int(p[0]) for p in np.nonzero(wrong)) if wrong.ndim else ()
    return (
        f"`{name}` differs in {int(np.sum(wrong))} of {wrong.size} elements, first at {place}: "
        f"got {got[place]}, want {want[place]}, allowed {allowed[place]:.3g}"
    )


def run_case(case: Case, modes: Sequence[str] = ()) -> Report:
    """Every mode (none given: those drawn for the case) against the reference, at all sizes."""
    with drawn_effort(random.Random(case.seed + 5)):
        return _report(case, modes or drawn_modes(case))


def _report(case: Case, modes: Sequence[str]) -> Report:
    try:
        symbolic = kernel(case, "symbolic", {})
    except TCError as e:
        return Report(rejected=e.kind)
    except Exception:
        return Report(failures=(_crash("symbolic", {}),))
    run = _Run(case, symbolic)
    for sizes in case.sizes:
        try:
            at = run.at(sizes)
        except Exception:
            run.failures.append(_crash("reference", sizes))
            continue
        unexpected = ""
        if not isinstance(at.want, TCError):
            unexpected = case.unexpected(at.want, sizes)
        elif case.must_run(sizes):
            unexpected = str(at.want)
        if unexpected:
            run.failures.append(Failure("unexpected result", "reference", sizes, unexpected))
            continue
        for mode in modes:
            if mode != "cached" and is_tried(case, mode, sizes):
                run.compare(mode, at)
    if "cached" in modes and not run.failures:
        run.compare_cached()
    return Report(run.elements, run.errors, "", tuple(run.failures))


class _At(Struct, frozen=True):
    """A call that all modes make: `want` is the reference's result, `allowed` how far it may be."""

    sizes: dict[str, int]
    inputs: dict[str, NDArray[Any]]
    want: Outcome
    allowed: Results


def _fenced(case: Case, sizes: Sizes) -> dict[str, NDArray[Any]]:
    """Inputs, mostly beside memory that nothing may touch: not to use what is read there is no
    excuse."""
    edge = random.Random(f"{case.seed} {case.turn(sizes)}").choice(("end", "end", "start", ""))
    return {n: guarded(x, edge) if edge else x for n, x in case.arrays(sizes).items()}


class _Run:
    """One case: its kernels by mode, and what was found."""

    def __init__(self, case: Case, symbolic: Any) -> None:
        self.case = case
        self.reference = symbolic.reference
        self.compiled = {"symbolic": symbolic}
        self.names = results_of(case)
        self.elements = self.errors = 0
        self.failures: list[Failure] = []

    def at(self, sizes: dict[str, int]) -> _At:
        inputs = _fenced(self.case, sizes)
        want = outcome(self.reference, self.names, inputs, sizes)
        allowed: Results = {}
        if not isinstance(want, TCError):
            allowed = self.tolerances(want, inputs, sizes)
        return _At(sizes, inputs, want, allowed)

    def tolerances(
        self, want: Results, inputs: Mapping[str, Any], sizes: Sizes, runs: int = RUNS
    ) -> Results:
        allowed = tolerances(self.reference, want, inputs, sizes, self.case.seed, runs)
        exact = {name: np.zeros(x.shape) for name, x in allowed.items() if name in self.case.exact}
        return {**allowed, **exact}

    def compare(self, mode: str, at: _At) -> None:
        failure = self._failure(mode, at, self.compiled)
        if failure and at.allowed and failure.kind.endswith("values"):
            # of few runs none may move what seldom moves: int32(tanh(x)) of a large x
            assert not isinstance(at.want, TCError)
            allowed = self.tolerances(at.want, at.inputs, at.sizes, MANY_RUNS)
            at = _At(at.sizes, at.inputs, at.want, allowed)
            failure = self._failure(mode, at, self.compiled)
        is_special = self.case.at(at.sizes).is_special
        if failure and failure.kind.endswith("values") and is_special:
            with _as_written():
                failure = self._failure(mode, at, {})
        self._note(failure, at)

    def _note(self, failure: Failure | None, at: _At) -> None:
        if failure:
            self.failures.append(failure)
        elif isinstance(at.want, TCError):
            self.errors += 1
        else:
            self.elements += sum(int(np.sum(~np.isnan(t))) for t in at.allowed.values())

    def compare_cached(self) -> None:
        """Kernels of other settings that share the cache."""
        sizes = self.case.sizes[0]
        try:
            for sizes, inputs, found in cached_kernels(self.case):
                at = self.at(dict(sizes))
                got = outcome(in_place(found, self.case), self.names, inputs, sizes)
                kind, details = difference(got, at.want, at.allowed)
                if kind == "values" and not isinstance(at.want, TCError):
                    allowed = self.tolerances(at.want, at.inputs, sizes, MANY_RUNS)
                    kind, details = difference(got, at.want, allowed)
                    kind = "" if self.case.at(sizes).is_special else kind
                if kind:
                    self.failures.append(Failure(kind, "cached", dict(sizes), details))
                    return
        except Stale as e:
            self.failures.append(Failure("stale code", "cached", dict(sizes), str(e)))
        except Exception:
            self.failures.append(_crash("cached", dict(sizes)))

    # ---- one mode

    def _failure(self, mode: str, at: _At, compiled: dict[str, Any]) -> Failure | None:
        turn = self.case.turn(at.sizes) if mode == "memory" else 0
        rng, drawn = random.Random(self.case.seed + turn), nullcontext()
        if mode in ("thresholds", "memory"):
            drawn = random_thresholds(rng)
        elif mode.startswith("cuda:"):
            drawn = small_tiles(rng)
        device = self._device() if mode.startswith("cuda:sm") else nullcontext()
        before = {name: np.array(a) for name, a in at.inputs.items()}
        try:
            with drawn, device:
                if mode == "memory":
                    return self._in_memory(at, compiled)
                kind, details = self._difference(mode, at, compiled)
        except Spoilt as e:
            kind, details = "memory of out=", str(e)
        except Exception:
            return _crash(mode, at.sizes)
        if not kind and any(a.tobytes() != before[n].tobytes() for n, a in at.inputs.items()):
            kind, details = "input overwritten", "an input array was changed"
        return Failure(kind, mode, at.sizes, details) if kind else None

    @contextmanager
    def _device(self) -> Iterator[None]:
        updated = [i.tensor.name for i in self.case.inputs if i.inout]
        with usual_effort(), interpreted(updated):
            yield

    def _difference(self, mode: str, at: _At, compiled: dict[str, Any]) -> tuple[str, str]:
        """Of the first call and of a later one."""
        case, key = self.case, kernel_key(self.case, mode, at.sizes)
        try:
            if key not in compiled:
                compiled[key] = kernel(case, mode, at.sizes)
        except TCError as e:
            return _refused(e) or difference(e, at.want, at.allowed)
        n = case.seed + case.sizes.index(at.sizes)
        call = called(compiled[key], mode, at.inputs, at.want, n)
        told = case.told(at.sizes)
        got: Outcome | None = outcome(call, self.names, at.inputs, told)
        if isinstance(got, TCError) and got.kind == "option":
            return "", ""  # a strategy that this program does not allow
        assert got is not None
        kind, details = difference(got, at.want, at.allowed)
        if not kind and mode == "wrong" and not isinstance(at.want, TCError):
            return refused_wrongly(case, compiled[key], at.inputs, at.sizes, at.want)
        if not kind:
            rng = random.Random(f"{case.seed} {mode}")  # for all sizes: layouts are compiled for
            got = called_again(compiled[key], mode, at.inputs, at.want, told, rng)
            if got is not None:
                kind, details = difference(got, at.want, at.allowed)
        return kind, details

    def _in_memory(self, at: _At, compiled: dict[str, Any]) -> Failure | None:
        """The loops themselves, on checked memory (`memory`). Calls that fail are no test."""
        case, key = self.case, kernel_key(self.case, "memory", at.sizes)
        if isinstance(at.want, TCError):
            return None
        if key not in compiled:
            rng = random.Random(case.seed + case.turn(at.sizes))
            compiled[key] = memory.mapped(case, rng, drawn_binding(case), at.sizes)
        try:
            got = memory.run(compiled[key], at.inputs, at.sizes, case.seed)
        except AssertionError as e:
            return Failure(f"memory: {str(e).rpartition(' ')[2]}", "memory", at.sizes, str(e))
        got = {name: got[name].reshape(x.shape) for name, x in at.want.items()}
        loose = {name: 16 * x for name, x in at.allowed.items()}  # the loops compute in float64
        kind, details = difference(got, at.want, loose)
        return Failure(f"loops: {kind}", "memory", at.sizes, details) if kind else None


def _refused(e: TCError) -> tuple[str, str] | None:
    return ("", "") if e.kind == "option" else None


@contextmanager
def _as_written() -> Iterator[None]:
    """Within, operands are not taken in pairs, and chains in no other order: infinite factors then
    meet sums, not terms."""
    plain = patch("tcsym.proved.pair_operands", lambda program, context=(): program)
    ordered = patch("tcsym.compiler.Lowering.ordered", lambda stages: stages.program)
    with plain, ordered, patch.dict("os.environ", {"TCSYM_CACHE": "0"}):
        yield


def _crash(mode: str, sizes: dict[str, int]) -> Failure:
    text = traceback.format_exc()
    return Failure(text.strip().splitlines()[-1][:60], mode, sizes, text[-1200:])
