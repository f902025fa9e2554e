# SPDX-License-Identifier: Apache-2.0
"""Functions without a C library: the same formulas on this processor, and code for a device."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.codegen import emit
from tcsym.codegen.scalar.built_ins import NAMES
from tcsym.frontend.interpret_functions import FUNCTIONS
from tcsym.frontend.program import Call, Read
from tcsym.index.expr import var
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tcsym.target.target import Target
from tcsym.types import DType
from tests.codegen.harness import TARGETS, elementwise
from tests.codegen.scalar.test_functions import (
    DOUBLE_ULPS,
    N_ARGS,
    SINGLE_ULPS,
    errors_in_ulp,
    inputs,
    run,
)

PLAIN = resolve_target("cpu:novector")
OWN = replace(
    PLAIN,
    cpu="haswell",
    features=("avx2", "fma"),
    machine=replace(PLAIN.machine, has_fma=True, has_libm=False),
)
REFERENCES = json.loads((Path(__file__).parent / "reference_values.json").read_text())
# Largest errors in ulp, away from zeros of functions that are only absolutely accurate there.
ULPS = {
    **dict.fromkeys(["cbrt", "exp10"], 1),
    **dict.fromkeys(["erfc", "rcbrt"], 2),
    **dict.fromkeys(["tan", "lgamma"], 4),
    **dict.fromkeys(["j0", "j1", "y0", "y1", "tgamma"], 6),
}
on_own = pytest.mark.skipif(
    not runs_here(OWN), reason="own functions use fused steps, which this processor lacks"
)


EVERY: list[str | Target] = [*TARGETS, *[OWN] * runs_here(OWN)]


def named(target: str | Target) -> str:
    return "own" if target is OWN else str(target)


@on_own
@pytest.mark.parametrize("name", sorted(NAMES))
def test_function(name: str) -> None:
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        args = inputs(N_ARGS.get(name, 1), dtype)
        got = run(name, args, dtype, 0, OWN)
        with np.errstate(all="ignore"):
            if name == "nextafter":
                want = np.nextafter(*args).astype(np.float64)
            else:
                want = np.asarray(FUNCTIONS[name](*(a.astype(np.float64) for a in args)))
            worst = errors_in_ulp(got, want)
        single = dtype is DType.FLOAT32
        limit = SINGLE_ULPS.get(name, 1.1) if single else DOUBLE_ULPS.get(name, 3)
        k = int(np.argmax(np.where(np.isnan(worst), np.inf, worst)))
        assert worst[k] <= limit, (dtype, [a[k] for a in args], got[k], want[k])


@pytest.mark.parametrize("target", EVERY, ids=named)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_reference_values(name: str, target: str | Target) -> None:
    x, want = np.array(REFERENCES[name]).T.copy()
    if target is not OWN and name in ("sin", "cos", "tan"):  # some libraries are 15 ulp off
        near = np.abs(x) < 1e7
        x, want = x[near], want[near]
    got = run(name, [x], DType.FLOAT64, 0 if target is OWN else 8, target)
    with np.errstate(all="ignore"):
        worst = errors_in_ulp(got, want)
    limit = ULPS.get(name, 3)
    k = int(np.argmax(np.where(np.isnan(worst), np.inf, worst)))
    assert worst[k] <= limit, (x[k], got[k], want[k])
    assert (np.signbit(got) == np.signbit(want))[want != 0].all()


INF, NAN = math.inf, math.nan
SPECIALS = {  # as C has them
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (-27, -3)],
    "erfc": [(0.0, 1), (-0.0, 1), (INF, 0.0), (-INF, 2), (NAN, NAN), (28, 0.0), (1e300, 0.0)],
    "exp10": [(0.0, 1), (-INF, 0.0), (INF, INF), (NAN, NAN), (309, INF), (-330, 0.0), (3, 1000)],
    "j0": [(0.0, 1), (-0.0, 1), (INF, 0.0), (-INF, 0.0), (NAN, NAN)],
    "j1": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (NAN, NAN), (5e-324, 0.0)],
    "y0": [(0.0, -INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (INF, 0.0), (NAN, NAN)],
    "y1": [
        (0.0, -INF),
        (-0.0, -INF),
        (-9, NAN),
        (-INF, NAN),
        (INF, 0.0),
        (NAN, NAN),
        (1e-309, -INF),
    ],
    "lgamma": [(0.0, INF), (-0.0, INF), (-3, INF), (1, 0.0), (2, 0.0), (INF, INF), (-INF, INF)],
    "tgamma": [(0.0, INF), (-0.0, -INF), (-3, NAN), (-INF, NAN), (INF, INF), (172, INF), (6, 120)],
    "logb": [
        (0.0, -INF),
        (-0.0, -INF),
        (-INF, INF),
        (NAN, NAN),
        (5e-324, -1074),
        (-8, 3),
        (0.9, -1),
    ],
    "sin": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "erfcx": [(INF, 0.0), (-INF, INF), (NAN, NAN), (0.0, 1)],
    "normcdf": [(INF, 1), (-INF, 0.0), (NAN, NAN), (0.0, 0.5), (-60, 0.0)],
    "sinpi": [(INF, NAN), (-0.0, -0.0), (3, 0.0), (-4, -0.0)],
}


@pytest.mark.parametrize("target", EVERY, ids=named)
@pytest.mark.parametrize("name", sorted(SPECIALS))
def test_special_values(name: str, target: str | Target) -> None:
    x, want = np.array(SPECIALS[name], np.float64).T.copy()
    got = run(name, [x], DType.FLOAT64, 0 if target is OWN else 8, target)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[want == want].all()


@on_own
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
def test_remainders_are_exact(dtype: DType) -> None:
    rng, kind = np.random.default_rng(4), np.dtype(dtype.numpy).type
    spread = 30 if dtype is DType.FLOAT32 else 300
    a, b = (10.0 ** rng.uniform(-spread, spread, 4000) * rng.choice([-1, 1], 4000) for _ in "ab")
    least = np.finfo(kind).smallest_subnormal
    ends = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, least, 7 * least, np.finfo(kind).max])
    a, b = (
        np.concatenate([x, y.ravel()]).astype(kind) for x, y in zip((a, b), np.meshgrid(ends, ends))
    )
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
        defined = np.isfinite(a) & ~np.isnan(b) & (b != 0)
        pairs = zip(a[defined].tolist(), b[defined].tolist())
        nearest = np.full(a.shape, np.nan)
        nearest[defined] = [math.remainder(x, y) for x, y in pairs]
    got = run("fmod", [a, b], dtype, 0, OWN)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()
    np.testing.assert_array_equal(run("remainder", [a, b], dtype, 0, OWN), nearest.astype(kind))


@pytest.mark.parametrize(
    "dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64], ids=str
)
def test_device_code_refers_to_nothing(dtype: DType) -> None:
    """All functions, as code for NVIDIA's devices: LLVM has instructions for all they call."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    device = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    machine = device.create_target_machine(cpu="sm_80", features="+ptx70")
    for name in sorted(NAMES):
        names = "ABCD"[: N_ARGS.get(name, 1)]
        value = Call(name, tuple(Read(x, (var("i"),), dtype) for x in names), dtype)
        text = emit(elementwise(value, dtype, dict.fromkeys(names, dtype), 0), OWN, 1).ir_text
        declared = re.findall(r"^declare .*?@([\w.]+)", text, re.MULTILINE)
        assert [d for d in declared if not d.startswith("llvm.")] == [], name
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        assembly = machine.emit_assembly(module)
        assert "tcsym_kernel" in assembly and ".extern" not in assembly, name


def test_with_a_library_far_angles_are_its() -> None:
    """A target with a C library calls it for what vector code leaves."""
    value = Call("sin", (Read("A", (var("i"),), DType.FLOAT64),), DType.FLOAT64)
    kernel = elementwise(value, DType.FLOAT64, {"A": DType.FLOAT64}, 0)
    text = emit(kernel, resolve_target("cpu:avx2"), 1).ir_text
    assert "declare double @sin(double)" in text and "@tcsym.sin" not in text
    assert "@tcsym.sin" in emit(kernel, OWN, 1).ir_text
