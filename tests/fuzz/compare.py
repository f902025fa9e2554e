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
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tcsym.definition import define
from tcsym.dispatch.beside import compilations
from tcsym.errors import TCError
from tcsym.options import Options
from tcsym.runtime.background import settle
from tcsym.sizes import Dim
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Symbolic
from tests.fuzz import memory
from tests.fuzz.model import Case, Sizes
from tests.fuzz.perturb import perturbed
from tests.fuzz.thresholds import TARGETS, random_options, random_thresholds
from tests.guarded import guarded

Results = dict[str, NDArray[Any]]
MODES = ("symbolic", "before", "after", "thresholds", "memory", "cpu:avx2", "cpu:novector")
STRATEGIES: dict[str, Any] = {
    "specialize": Specialize(),
    "bucket": Bucket(),
    "pad": Pad(8),
    "pad-max": Pad("max"),
    "auto": Auto(hot=0.0),
    "swaps": Specialize(background=1.0, max_variants=2),
    "declared": Symbolic(),
}
DRAWN = ("options", "thresholds", "memory")  # what is compiled is drawn for a program
BOUNDED = ("bucket", "pad-max", "declared")
RUNS, MANY_RUNS = 4, 64
MARGIN = 4.0


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind` says what went wrong, without figures: the reducer keeps it the same."""

    kind: str
    mode: str
    sizes: dict[str, int]
    details: str


@dataclass(frozen=True, slots=True)
class Report:
    elements: int = 0
    errors: int = 0  # calls for which all sides raised the same error
    rejected: str = ""  # kind of the compile-time error, if the program is none
    failures: tuple[Failure, ...] = ()


Outcome = Results | TCError


def kernel(case: Case, mode: str, sizes: Sizes) -> Any:
    """The def of `case` compiled as `mode` says (sizes matter where they are substituted)."""
    options: dict[str, Any] = {"strategy": STRATEGIES.get(mode, "symbolic")}
    if mode in BOUNDED:
        options["sizes"] = declared(case)
    if mode == "before" and sizes:
        options = {"sizes": dict(sizes), "options": Options(bind="before")}
    elif mode == "after" and sizes:
        options = {"sizes": dict(sizes), "options": Options(bind="after")}
    elif mode == "options" or mode == "thresholds":
        rng, bind = random.Random(case.seed), drawn_binding(case)
        drawn = replace(random_options(rng), bind=bind)
        options |= {"options": drawn, "target": rng.choice(TARGETS)}
        options |= {"sizes": dict(sizes)} if bind != "never" and sizes else {}
    elif mode == "threads":  # short loops, too
        options["options"] = Options(min_work_per_thread=0)
    elif mode.startswith("cpu"):
        options["target"] = mode
    return define(case.source, **options)[case.name]


def drawn_binding(case: Case) -> Literal["never", "before", "after"]:
    """When the sizes of this program become numbers."""
    bindings: list[Literal["never", "before", "after"]] = ["never"] * 6 + ["before", "after"]
    return random.Random(case.seed + 1).choice(bindings)


def declared(case: Case) -> dict[str, Dim]:
    """The tightest ranges and multiples, so that calls lie at their bounds."""
    values = {n: [s[n] for s in case.sizes] for n in case.sizes[0]}
    return {n: Dim(min(v), max(v), max(1, gcd(*v))) for n, v in values.items()}


def outcome(call: Any, names: Sequence[str], inputs: Mapping[str, Any], sizes: Sizes) -> Outcome:
    """Named results of a kernel or of its reference, or the error it raised."""
    try:
        results = call(**inputs, sizes=dict(sizes))
    except TCError as e:
        return e
    arrays = (results,) if len(names) == 1 else tuple(results)
    return {name: np.asarray(a) for name, a in zip(names, arrays)}


def called(kernel: Any, mode: str, inputs: Mapping[str, Any], want: Outcome, n: int) -> Any:
    """The kernel, called as `mode` says; `n` counts calls."""
    if mode == "swaps":
        return partial(_swapped, kernel)
    if mode in ("threads", "options", "thresholds"):
        return partial(kernel, threads=3)
    if mode != "guarded" or isinstance(want, TCError):
        return kernel
    edge: Any = "end" if n % 2 else "start"

    def fenced(**given: Any) -> Any:
        arrays = {k: guarded(x, edge) if k in inputs else x for k, x in given.items()}
        out = tuple(guarded(x, edge) for x in want.values())
        kernel(**arrays, out=out if len(out) > 1 else out[0])
        return out if len(out) > 1 else out[0]

    return fenced


def _swapped(kernel: Any, **given: Any) -> Any:
    """Called until a version made beside the calls, entered natively, serves these sizes."""
    for _ in range(3):
        kernel(**given)
        compilations.settle()
        settle()
    return kernel(**given)


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


def run_case(case: Case, modes: Sequence[str] = MODES) -> Report:
    """Every mode against the reference at every set of sizes."""
    try:
        symbolic = kernel(case, "symbolic", {})
    except TCError as e:
        return Report(rejected=e.kind)
    except Exception:
        return Report(failures=(_crash("symbolic", {}),))
    compiled = {"symbolic": symbolic}
    elements, errors, failures = 0, 0, []
    for sizes in case.sizes:
        inputs = case.arrays(sizes)
        names = [name for name, _ in case.outputs]
        try:
            want = outcome(symbolic.reference, names, inputs, sizes)
            allowed = {}
            if not isinstance(want, TCError):
                allowed = tolerances(symbolic.reference, want, inputs, sizes, case.seed)
        except Exception:
            failures.append(_crash("reference", sizes))
            continue
        for mode in modes:
            failure = _run_mode(case, mode, compiled, inputs, sizes, want, allowed)
            if failure and allowed and failure.kind.endswith("values"):
                # of few runs none may move what seldom moves: int32(tanh(x)) of a large x
                allowed = tolerances(symbolic.reference, want, inputs, sizes, case.seed, MANY_RUNS)
                failure = _run_mode(case, mode, compiled, inputs, sizes, want, allowed)
            if failure and failure.kind.endswith("values") and case.is_special:
                with _as_written():
                    failure = _run_mode(case, mode, {}, inputs, sizes, want, allowed)
            if failure:
                failures.append(failure)
            elif isinstance(want, TCError):
                errors += 1
            else:
                elements += sum(int(np.sum(~np.isnan(t))) for t in allowed.values())
    return Report(elements, errors, "", tuple(failures))


@contextmanager
def _as_written() -> Iterator[None]:
    """Within, operands are not taken in pairs, and chains in no other order: infinite factors then
    meet sums, not terms."""
    plain = patch("tcsym.polyhedral.schedule.pair_operands", lambda program, context=(): program)
    ordered = patch("tcsym.compiler.Lowering.ordered", lambda stages: stages.program)
    with plain, ordered, patch.dict("os.environ", {"TCSYM_CACHE": "0"}):
        yield


def _run_mode(
    case: Case,
    mode: str,
    compiled: dict[str, Any],
    inputs: Mapping[str, Any],
    sizes: dict[str, int],
    want: Outcome,
    allowed: Results,
) -> Failure | None:
    key = "symbolic" if mode == "guarded" else mode
    if mode in ("before", "after") or (mode in DRAWN and drawn_binding(case) != "never"):
        key = f"{mode} {sizes}"
    before = {name: np.array(a) for name, a in inputs.items()}
    is_drawn = mode in ("thresholds", "memory")
    drawn = random_thresholds(random.Random(case.seed)) if is_drawn else nullcontext()
    try:
        with drawn:
            if mode == "memory":
                return _run_memory(case, compiled, key, inputs, sizes, want, allowed)
            if key not in compiled:
                compiled[key] = kernel(case, mode, sizes)
            call = called(compiled[key], mode, inputs, want, case.seed + case.sizes.index(sizes))
            got = outcome(call, [name for name, _ in case.outputs], inputs, sizes)
    except TCError as e:
        got = e
    except Exception:
        return _crash(mode, sizes)
    if isinstance(got, TCError) and got.kind == "option":
        return None  # a strategy that this program does not allow
    kind, details = difference(got, want, allowed)
    if not kind and any(a.tobytes() != before[n].tobytes() for n, a in inputs.items()):
        kind, details = "input overwritten", "an input array was changed"
    return Failure(kind, mode, sizes, details) if kind else None


def _run_memory(
    case: Case,
    compiled: dict[str, Any],
    key: str,
    inputs: Mapping[str, Any],
    sizes: dict[str, int],
    want: Outcome,
    allowed: Results,
) -> Failure | None:
    """The loops themselves, on memory that is checked (`memory`). Calls that fail are no test."""
    if isinstance(want, TCError):
        return None
    if key not in compiled:
        rng = random.Random(case.seed)
        compiled[key] = memory.mapped(case, rng, drawn_binding(case), sizes)
    try:
        got = memory.run(compiled[key], inputs, sizes, case.seed)
    except AssertionError as e:
        return Failure(f"memory: {str(e).rpartition(' ')[2]}", "memory", sizes, str(e))
    got = {name: got[name].reshape(x.shape) for name, x in want.items()}
    loose = {name: 16 * x for name, x in allowed.items()}  # the loops compute in float64
    kind, details = difference(got, want, loose)
    return Failure(f"loops: {kind}", "memory", sizes, details) if kind else None


def _crash(mode: str, sizes: dict[str, int]) -> Failure:
    text = traceback.format_exc()
    return Failure(text.strip().splitlines()[-1][:60], mode, sizes, text[-1200:])
