# SPDX-License-Identifier: Apache-2.0
"""What is run three ways: the reference, the twin, the kernel's PTX in the interpreter.

Acceptance programs (`TCSYM_PROGRAMS`, or ../shared/programs) at their own sizes, the library's
kernels, and mechanisms that small sizes do not reach: plans that are asked for, on two devices.
"""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

import tcsym as tc
from tests.ptx.device import interpreted
from tests.test_library import CASES as LIBRARY
from tests.test_library import inputs as library_inputs

Case = Callable[[], str]  # what is wrong; empty if nothing is
Arrays = tuple[np.ndarray[Any, Any], ...]
DEVICE, OTHER, TWIN = "cuda:sm_90a", "cuda:sm_80", "cuda:twin"
# Relative and absolute tolerances of run.py.
_NEAR = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}


def unlike(found: Any, wanted: Any, exactly: bool = False) -> str:
    """How two results differ."""
    found, wanted = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        near = 0.0 if exactly else _NEAR.get(a.dtype.name, 0.0)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        wide = [x.astype("f8") if near else x for x in (a, b)]
        same = np.isclose(*wide, near, near, equal_nan=True) if near else wide[0] == wide[1]
        if not same.all():
            at = tuple(int(x[0]) for x in np.nonzero(~same))
            return f"result {k} is {a[at]} at {at}, not {b[at]}; {int((~same).sum())} differ"
    return ""


# ---- texts on arrays


def three_ways(
    text: str,
    arrays: Arrays,
    device: str = DEVICE,
    options: tc.Options | None = None,
    exactly: bool = False,
) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="no nest is offered the plan")
        twin = tc.define(text, target=TWIN, strategy="symbolic", options=options)
        (name,) = twin
        with interpreted():
            ours = tc.define(text, target=device, strategy="symbolic", options=options)[name]
            found = ours(*arrays)
        others = {"reference": ours.reference(*arrays), "twin": twin[name](*arrays)}
    for other, wanted in others.items():
        why = unlike(found, wanted, exactly)
        if why:
            return f"not the {other}'s: {why}"
    return ""


def library_case(name: str) -> Case:
    def run() -> str:
        shapes, _ = LIBRARY[name]
        return three_ways(tc.library.source(name), tuple(library_inputs(name, shapes)))

    return run


# ---- acceptance programs


@lru_cache(None)
def runner() -> ModuleType | None:
    """run.py of the acceptance programs, where they are."""
    path = Path(os.environ.get("TCSYM_PROGRAMS", "../shared/programs")) / "run.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("acceptance_run", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Three:
    """Runs a record in the interpreter, and holds what comes beside the twin and the reference."""

    def __init__(self) -> None:
        self._kernels: dict[str, Any] = {}

    def _kernel(self, record: Mapping[str, Any], target: str) -> Any:
        if target not in self._kernels:
            module = tc.define(record["source"], target=target, strategy="symbolic")
            entry = record.get("entry")
            self._kernels[target] = getattr(module, entry) if entry else module
        return self._kernels[target]

    def __call__(
        self, record: Mapping[str, Any], inputs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> dict[str, Any]:
        given = {**inputs, "sizes": dict(sizes)}
        ours = self._kernel(record, DEVICE)
        found = ours(**given)
        others = {"twin": self._kernel(record, TWIN)(**given), "reference": ours.reference(**given)}
        for name, other in others.items():
            why = unlike(found, other)
            if why:
                raise AssertionError(f"not the {name}'s: {why}")
        names = list(ours.signature.outputs)
        return dict(zip(names, found if isinstance(found, tuple) else (found,)))


def program_case(number: int, record: Mapping[str, Any]) -> Case:
    def run() -> str:
        acceptance = runner()
        assert acceptance is not None
        with warnings.catch_warnings(), interpreted():
            warnings.simplefilter("ignore")
            return acceptance.check(_Three(), number, record) or ""

    return run


def _programs() -> dict[str, Case]:
    acceptance = runner()
    if acceptance is None:
        return {}
    lines = (Path(str(acceptance.__file__)).parent / "programs.jsonl").read_text().splitlines()
    records = [(k, json.loads(line)) for k, line in enumerate(lines)]
    return {
        f"program {r['name']}": program_case(k, r)
        for k, r in records
        if r["valid"] or r["error"]["phase"] == "call"
    }


# ---- mechanisms


def whole_numbers(dtype: str, *shapes: tuple[int, ...]) -> Arrays:
    """Of which float32 holds sums exactly, so that the order of sums is nothing."""
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    rng = np.random.default_rng(3)
    return tuple(rng.integers(-3, 4, shape).astype(kind) for shape in shapes)


def product_text(dtype: str, left: str = "m,k", right: str = "k,n") -> str:
    """float16's and bfloat16's are summed in float32."""
    sizes = {x: ",".join(x.upper().split(",")) for x in (left, right)}
    result = "float" if dtype in ("float16", "bfloat16") else dtype
    names = {"float32": "float", "tf32": "float"}.get(dtype, dtype)
    result = names if result == dtype else result
    return (
        f"def mm({names}({sizes[left]}) A, {names}({sizes[right]}) B) -> ({result}(M,N) C) "
        f"{{ C(m,n) +=! A({left}) * B({right}) }}"
    )


def product(
    dtype: str,
    plan: str,
    sizes: tuple[int, int, int],
    left: str = "m,k",
    right: str = "k,n",
    device: str = DEVICE,
) -> str:
    m, k, n = sizes
    a = (m, k) if left == "m,k" else (k, m)
    b = (k, n) if right == "k,n" else (n, k)
    numpy_type = {"tf32": "float32"}.get(dtype, dtype)
    options = tc.Options(plan=plan, tf32=dtype == "tf32")
    arrays = whole_numbers(numpy_type, a, b)
    text = product_text(dtype, left, right)
    return three_ways(text, arrays, device, options, exactly=True)


TILES = "WarpTiles:64x64x32x3x32x32"
TF32_TILES = "WarpTiles:64x64x16x3x32x32"
ALIGNED, RAGGED = (72, 112, 80), (67, 51, 70)


def _products() -> dict[str, Case]:
    made: dict[str, Case] = {}

    def add(*given: Any) -> None:
        made["product " + " ".join(map(str, given))] = lambda: product(*given)

    for dtype, plan in (("float16", TILES), ("bfloat16", TILES), ("tf32", TF32_TILES)):
        for left in ("m,k", "k,m"):
            for right in ("k,n", "n,k"):
                add(dtype, plan, ALIGNED, left, right)
        add(dtype, plan, RAGGED)
        add(dtype, plan, RAGGED, "k,m", "n,k")
        add(dtype, plan, ALIGNED, "m,k", "k,n", OTHER)
        add(dtype, plan.replace("WarpTiles", "SplitSum"), (40, 200, 24))
    add("bfloat16", "WarpTiles:128x128x64x2x64x32", (130, 136, 136))
    add("float16", "WarpTiles:128x128x32x3x64x32", (128, 160, 128), "m,k", "n,k")
    for plan in ("SharedTiles:64x64x16x2x4x4", "SplitSum:64x64x16x3x4x4"):
        add("float32", plan, (70, 100, 72))
        add("float32", plan, RAGGED, "k,m", "n,k", OTHER)
    return made


GRID_STEPS = """def rnn(float(T,B,H) X, float(B,H) h0, float(H,H) U) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T { A(n,h) +=! S(t,n,k) * U(h,k)  S(t+1,n,h) = tanh(A(n,h) + X(t,n,h)) }
}"""
SCATTERED = """def f(int32(N) I, float(N) X) -> (float(V) H, float(V) G) {
  H(I(n)) +=! X(n) where v in 0:V
  G(I(n)) max=! X(n)
}"""
COUNTED = "def f(int32(N) I, int32(N) X) -> (int32(9) H) { H(I(n)) +=! X(n) }"


def normal(*shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(5)
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def rounded() -> str:
    """tf32 of numbers with more bits: as the twin rounds them, and near the reference."""
    text, options = product_text("tf32"), tc.Options(plan=TF32_TILES, tf32=True)
    a, b = normal((67, 52), (52, 72))
    with interpreted():
        found = tc.define(text, target=DEVICE, strategy="symbolic", options=options).mm(a, b)
    twin = tc.define(text, target=TWIN, strategy="symbolic", options=options).mm(a, b)
    error = np.linalg.norm(found - a @ b) / np.linalg.norm(a @ b)
    return unlike(found, twin) or ("" if 1e-5 < error < 4e-4 else f"an error of {error}")


def _mechanisms() -> dict[str, Case]:
    def planned(name: str, plan: str, shape: tuple[int, ...]) -> Case:
        text, options = tc.library.source(name), tc.Options(plan=plan)
        return lambda: three_ways(text, normal(shape), DEVICE, options)

    rng = np.random.default_rng(1)
    counted = rng.integers(0, 9, 300).astype("i4"), rng.integers(-9, 9, 300).astype("i4")
    steps = normal((5, 37, 19), (37, 19), (19, 19))
    made: dict[str, Case] = {
        f"steps on {device}": lambda device=device: three_ways(  # type: ignore[misc]
            GRID_STEPS, steps, device, tc.Options(plan="GridSteps")
        )
        for device in (DEVICE, OTHER)
    }
    made["tf32 rounded"] = rounded
    made["counts"] = lambda: three_ways(COUNTED, counted)
    for name, plan, shapes in (
        ("matmul_int8", "SharedTiles:64x64x16x2x4x4", {"A": (67, 51), "B": (51, 70)}),
        ("matmul_int8", "SharedTiles:64x64x16x2x4x4", {"A": (64, 48), "B": (48, 80)}),
        ("conv2d", "SharedTiles:64x64x16x2x4x4", {"I": (2, 5, 12, 13), "F": (66, 5, 3, 3)}),
        ("transpose", "TurnedTiles", {"X": (70, 90)}),
        ("attention", "", {"Q": (1, 2, 40, 16), "K": (1, 2, 70, 16), "V": (1, 2, 70, 24)}),
    ):
        text, given = tc.library.source(name), tuple(library_inputs(name, shapes))
        options = tc.Options(plan=plan)
        made[f"{name} {plan} {shapes}"] = partial(three_ways, text, given, DEVICE, options)
    for name in ("softmax", "log_softmax"):
        for plan in ("OnlineRows", "SharedRows", "BlockRows:512x1x8"):
            made[f"{name} {plan}"] = planned(name, plan, (5, 1100))
    return made


@lru_cache(None)
def cases() -> dict[str, Case]:
    """All, by name; those that take longest first."""
    library = {f"library {name}": library_case(name) for name in LIBRARY}
    return {**_products(), **_mechanisms(), **library, **_programs()}
