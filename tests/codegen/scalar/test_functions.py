# SPDX-License-Identifier: Apache-2.0
"""The 64 built-ins against the interpreter's functions: errors in units of the last place."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import re
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.codegen import assembly
from tcsym.codegen.scalar.built_ins import NAMES
from tcsym.frontend.interpret_functions import FUNCTIONS
from tcsym.frontend.program import Binary, Call, Read
from tcsym.index.expr import var
from tcsym.target.llvm import Module
from tcsym.target.names import resolve_target
from tcsym.target.target import Target
from tcsym.types import DType
from tests.codegen.harness import TARGETS, WAYS, Loaded, elementwise, load

N_ARGS = {
    **dict.fromkeys(
        [
            "atan2",
            "copysign",
            "fdim",
            "fdivide",
            "fmax",
            "fmin",
            "fmod",
            "hypot",
            "nextafter",
            "pow",
        ],
        2,
    ),
    **dict.fromkeys(["remainder", "rhypot"], 2),
    **dict.fromkeys(["fma", "norm3d", "rnorm3d"], 3),
    **dict.fromkeys(["norm4d", "rnorm4d"], 4),
}
# Largest error in ulp where it is not 1.1 (float32) or 3 (float64).
SINGLE_ULPS = {"rsqrt": 1.5, "tanh": 2.62, "erfc": 1.1}
DOUBLE_ULPS = {
    "cyl_bessel_i0": 20,
    "cyl_bessel_i1": 20,
    "erfcx": 6,  # the interpreter's is within 3
    "normcdf": 4000,  # the interpreter's, far in its tail
    "rcbrt": 4,  # numpy's cbrt and ours differ by one, and a reciprocal doubles that
    **dict.fromkeys(["sinh", "cosh", "tan"], 4),
    "tgamma": 20,
    **dict.fromkeys(["j0", "j1", "y0", "y1", "lgamma"], 1e6),  # the library's, near their zeros
}
SPECIAL_VALUES = [
    *(0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, 4, 8, 27, 0.25, 1.5, 2.5, -2.5, -1.5, -3, -4, 1e-40),
    *(np.inf, -np.inf, np.nan, 1e-30, 1e30, -1e30, 100, -100, 87.5, 88.5, -87.5, -103, 1e5, 1e38),
    *(2.0**20, 2.0**60, -(2.0**60), -1e-40),
]


def inputs(n: int, dtype: DType) -> list[Any]:
    """Special values in all pairs, then random ones of many magnitudes."""
    rng = np.random.default_rng(3)
    spread = np.exp(rng.normal(size=1000) * 20) * rng.choice([-1, 1], 1000)
    some = [rng.normal(size=900), rng.normal(size=900) * 10, rng.uniform(-1, 1, 900), spread]
    random = np.concatenate(some)
    a, b = (x.ravel() for x in np.meshgrid(SPECIAL_VALUES, SPECIAL_VALUES))
    columns = [np.concatenate([a, random]), np.concatenate([b, rng.permutation(random)])]
    columns += [rng.permutation(columns[0]) for _ in range(2)]
    with np.errstate(all="ignore"):
        return [c.astype(dtype.numpy) for c in columns[:n]]


@lru_cache(None)
def compiled(name: str, dtype: DType, width: int, target: Target | str) -> Loaded:
    names = "ABCD"[: N_ARGS.get(name, 1)]
    reads = tuple(Read(x, (var("i"),), dtype) for x in names)
    value = Call(name, reads, dtype)
    return load(elementwise(value, dtype, dict.fromkeys(names, dtype), width), target)


def run(name: str, args: list[Any], dtype: DType, width: int, target: Target | str) -> Any:
    out = np.zeros(len(args[0]), dtype.numpy)
    kernel = compiled(name, dtype, width, target)
    assert kernel({**dict(zip("ABCD", args)), "O": out}, {"N": out.size}) == 0
    return out


def errors_in_ulp(got: Any, want: Any) -> Any:
    """|got - want| over the spacing at the nearest value; NaN must meet NaN; 0 where equal."""
    near = want.astype(got.dtype)
    finite = np.where(np.isfinite(near), near, 1)
    error = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(finite)).astype(np.float64)
    fits = (got == near) | (np.isnan(got) & np.isnan(want))
    overflow = np.isinf(got) & (np.abs(want) > 0.99999999 * np.finfo(got.dtype).max)
    return np.where(fits | overflow, np.where(np.isfinite(error), np.minimum(error, 0.5), 0), error)


def test_the_table_is_complete() -> None:
    assert frozenset(FUNCTIONS) == NAMES and len(NAMES) == 64


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("target", "width"), WAYS)
@pytest.mark.parametrize("name", sorted(NAMES))
def test_function(name: str, width: int, target: str) -> None:
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        args = inputs(N_ARGS.get(name, 1), dtype)
        got = run(name, args, dtype, width, target)
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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16], ids=str)
def test_halves(dtype: DType, target: str) -> None:
    a = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    for name in ("exp", "sqrt", "erf"):
        got = run(name, [a], dtype, 8, target).astype(np.float64)
        with np.errstate(all="ignore"):
            want = FUNCTIONS[name](a.astype(np.float64)).astype(dtype.numpy).astype(np.float64)
            apart = np.abs(got - want) > np.abs(want) * (
                2.0**-10 if dtype is DType.FLOAT16 else 2.0**-7
            )
        assert not apart[np.isfinite(want)].any()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    b = np.random.default_rng(0).permutation(a)
    got = run("nextafter", [a, b], dtype, 8, target)
    with np.errstate(all="ignore"):
        want = np.nextafter(a, b)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


REFERENCES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 0.89),
    "log": (np.log, 0.83),
    "log1p": (np.log1p, 0.9),
    "tanh": (np.tanh, 2.62),
    "exp2": (np.exp2, 1.0),
}


def sweep(name: str, step: int, target: str) -> float:
    """Largest error over every step-th float32."""
    reference, _ = REFERENCES[name]
    worst = 0.0
    chunk = step << 22
    for start in range(0, 1 << 32, chunk):
        bits = np.arange(start, min(start + chunk, 1 << 32), step, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        got = run(name, [x], DType.FLOAT32, 8, target)
        with np.errstate(all="ignore"):
            error = errors_in_ulp(got, reference(x.astype(np.float64)))
        assert not np.isnan(error).any()
        worst = max(worst, float(error.max()))
    return worst


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_257th_float(name: str) -> None:
    assert sweep(name, 257, TARGETS[0]) <= REFERENCES[name][1]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_float(name: str) -> None:
    assert sweep(name, 1, TARGETS[0]) <= REFERENCES[name][1]


def test_erf_of_many_floats() -> None:
    x = np.arange(0x3F000000 - (3 << 23), 0x40800000, 1009, dtype=np.uint32).view(np.float32)
    got = run("erf", [x], DType.FLOAT32, 8, TARGETS[0])
    assert errors_in_ulp(got, FUNCTIONS["erf"](x.astype(np.float64))).max() <= 0.92


@pytest.mark.parametrize("target", TARGETS)
def test_erf_of_doubles(target: str) -> None:
    """Both formulas, where they meet, and the ends; SciPy itself is within one ulp."""
    rng = np.random.default_rng(1)
    ranges = ((-1.0, 1.0), (0.99, 1.01), (-7.0, 7.0), (5.8, 6.1))
    x = np.concatenate([rng.uniform(low, high, 4000) for low, high in ranges])
    tiny = 10.0 ** rng.uniform(-320, 0, 500)
    x = np.concatenate([x, tiny, -tiny, [0.0, -0.0, 1e308, np.inf, -np.inf, np.nan]])
    got = run("erf", [x], DType.FLOAT64, 8, target)
    want = np.asarray(FUNCTIONS["erf"](x))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert (same | (np.abs(got - want) <= 2.2 * np.spacing(np.abs(want)))).all()
    assert np.signbit(got[-5]) and not np.signbit(got[-6])


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60,
    reason="compares with long double, which is no longer than double here",
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name",
    [
        *(
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "exp2",
            "expm1",
            "log10",
            "log1p",
            "log2",
            "sin",
        ),
        *("sinh", "tan"),
    ],
)
def test_doubles_within_a_few_ulp(name: str, target: str) -> None:
    rng = np.random.default_rng(2)
    zeros = rng.integers(-80000, 80000, 4000) * (np.pi / 2)  # of sine and cosine, and beyond each
    x = [zeros, np.nextafter(zeros, np.inf), rng.uniform(-1.4e5, 1.4e5, 8000)]
    x += [rng.uniform(-1, 1, 8000), rng.uniform(-1080, 1030, 8000), 1 + 1e-9 * rng.normal(size=99)]
    x += [np.exp(rng.uniform(-740, 700, 4000)), 2.0 ** np.arange(-1074.0, 1024), SPECIAL_VALUES]
    x += [rng.uniform(-715, 715, 8000), 10.0 ** np.arange(-5, 23), 1 - 10 ** rng.uniform(-9, 0, 99)]
    values = np.concatenate(x)
    got = run(name, [values], DType.FLOAT64, 8, target)
    with np.errstate(all="ignore"):
        inverse = name.startswith("a")
        named = name.replace("a", "arc", 1) if inverse else name
        want = getattr(np, named)(values.astype(np.longdouble))
        spacing = np.spacing(np.abs(want.astype(np.float64)))
        error = np.abs((got.astype(np.longdouble) - want) / spacing)
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (got == want.astype(np.float64))
    wrong = np.flatnonzero(~(same | (error <= DOUBLE_ULPS.get(name, 3))))
    assert not wrong.size, (values[wrong[0]], got[wrong[0]], want[wrong[0]])
    if name in ("log2", "log10"):
        powers = np.isfinite(got) & (values > 1e-300)
        powers &= ((2.0 if name == "log2" else 10.0) ** np.rint(got)) == values
        assert powers.any() and not (got[powers] % 1).any()


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60,
    reason="compares with long double, which is no longer than double here",
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["atan2", "hypot", "pow"])
def test_doubles_of_two_within_a_few_ulp(name: str, target: str) -> None:
    rng = np.random.default_rng(3)
    wide = np.exp(rng.uniform(-700, 700, 8000))
    near = rng.uniform(0.5, 2, 8000)
    if name == "pow":
        pairs = [(b, rng.uniform(-740, 709, b.size) / np.log(b)) for b in (wide, near)]
        whole = rng.integers(-30, 30, (2, 3000)).astype(float)
        pairs += [(whole[0], whole[1]), (1 + 1e-9 * whole[0], 1e9 * whole[1])]
    else:
        pairs = [(wide, rng.permutation(wide)), (-wide, wide * near), (near - 1, near[::-1] - 1)]
    special = np.array(np.meshgrid(SPECIAL_VALUES, SPECIAL_VALUES)).reshape(2, -1)
    for x, y in [*pairs, (special[0], special[1])]:
        got = run(name, [x, y], DType.FLOAT64, 8, target)
        with np.errstate(all="ignore"):
            reference = {"atan2": np.arctan2, "pow": np.power}.get(name, np.hypot)
            want = reference(x.astype(np.longdouble), y.astype(np.longdouble))
            near64 = want.astype(np.float64)
            error = np.abs((got.astype(np.longdouble) - want) / np.spacing(np.abs(near64)))
        same = (got == near64) | (np.isnan(got) & np.isnan(want))
        assert (same | (error <= 3)).all()
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
def test_zeros_keep_their_signs(dtype: DType, target: str) -> None:
    zeros = np.array([0.0, -0.0] * 8, dtype.numpy)
    odd = ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "sinpi", "cyl_bessel_i1"]
    for name in (*odd, "expm1", "log1p", "erf", "erfinv", "cbrt"):
        got = run(name, [zeros], dtype, 8, target)
        assert not got.any() and (np.signbit(got) == np.signbit(zeros)).all(), name


@pytest.mark.parametrize("target", TARGETS)
def test_what_overflows_is_infinite(target: str) -> None:
    """erfcx of about -26.64: the square's rounding times infinity was taken off infinity."""
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        x = np.array([-26.64, -26.65, -26.68, -26.7, -27, -1e30, -np.inf], dtype.numpy)
        assert (run("erfcx", [x], dtype, 8, target) == np.inf).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
def test_remainders_are_exact(dtype: DType, target: str) -> None:
    """Quotients at and beside integers, small and too large for one division, and denormals."""
    rng, kind = np.random.default_rng(4), np.dtype(dtype.numpy).type
    y = rng.normal(size=4000).astype(kind)
    near = (rng.integers(-(2**26), 2**26, y.size) >> rng.integers(0, 26, y.size)).astype(kind) * y
    least = np.finfo(kind).smallest_subnormal
    pairs = [(near, y), (np.nextafter(near, kind(np.inf)), y), (np.nextafter(near, -near), y)]
    pairs += [(rng.integers(1, 99, 900) / 10, np.full(900, 0.1)), (y * least * 9, y[::-1] * least)]
    pairs += [(near * 2.0 ** rng.integers(-60, 60, y.size), y)]
    special = np.array(np.meshgrid(SPECIAL_VALUES, SPECIAL_VALUES)).reshape(2, -1)
    text = f"""def f({dtype}(N) x, {dtype}(N) y) -> (r, m, n) {{
        r(i) = fmod(x(i), y(i))
        m(i) = x(i) % y(i)
        n(i) = remainder(x(i), y(i))
    }}"""
    kernel = tcsym.define(text, target=target)

    def nearest(a: Any, b: Any) -> Any:
        whole = [x if np.isfinite(x) and y else np.nan for x, y in zip(a.tolist(), b.tolist())]
        found = [math.remainder(x, y) if x == x else x for x, y in zip(whole, b.tolist())]
        return np.array(found).astype(kind)

    for a, b in [*pairs, (special[0], special[1])]:
        with np.errstate(all="ignore"):
            a, b = a.astype(kind), b.astype(kind)
            found, wanted = kernel(a, b), (np.fmod(a, b), np.mod(a, b), nearest(a, b))
        for got, want in zip(found, wanted):
            np.testing.assert_array_equal(got, want)
            defined = ~np.isnan(want)
            assert (np.signbit(got) == np.signbit(want))[defined].all()


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(
    "term", ["P(M-1) % A", "fmod(P(0), A)", "remainder(P(0), A)", "sin(A) * P(0)", "-P(0) % A"]
)
def test_what_branches_stays_inside_loops(term: str, kind: str) -> None:
    """The library's part of these is a block of its own: in front of a loop there is none."""
    text = f"""def f({kind} A, {kind}(M) P, {kind}(N,M) C) -> (T, U) {{
        T(i,j) = {term} where i in 0:N, j in 0:N
        U(i) +=! ({term}) * C(i,j)
    }}"""
    rng, dtype = np.random.default_rng(5), np.dtype("f4" if kind == "float" else "f8")
    p, c = rng.normal(size=37).astype(dtype), rng.integers(-3, 4, (21, 37)).astype(dtype)
    kernel = tcsym.define(text)
    args = np.array(0.25, dtype), p, c
    for got, want in zip(kernel(*args), kernel.reference(*args)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_threads_share_no_sign_of_lgamma() -> None:
    kernel = tcsym.define("def f(double(N) X) -> (Y) { Y(i) = lgamma(X(i)) }").f
    text = kernel.explain("llvm")
    assert "@lgamma_r(" in text and "@lgamma(" not in text


def test_only_library_symbols_are_called() -> None:
    """What object code refers to exists in the C library, for every target and type."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    for target in ("cpu:avx512", "cpu:avx2", "cpu:novector"):
        called: set[str] = set()
        for dtype in (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16):
            if dtype is DType.FLOAT16 and target != "cpu:novector":
                continue  # has instructions for its conversions
            reads = [Read(x, (var("i"),), dtype) for x in "ABCD"]
            calls = [Call(x, tuple(reads[: N_ARGS.get(x, 1)]), dtype) for x in sorted(NAMES)]
            every = reduce(lambda a, b: Binary("add", a, b, dtype), calls[1:], calls[0])
            called |= symbols(elementwise(every, dtype, dict.fromkeys("ABCD", dtype), 4), target)
        assert {"fmodf", "j1"} <= called
        missing = {s for s in called if not s.startswith("tcsym") and not hasattr(library, s)}
        assert not missing


def symbols(kernel: Any, target: str) -> set[str]:
    from tcsym.codegen import emit

    resolved = resolve_target(target)
    text = assembly(emit(kernel, resolved, 1).ir_text, resolved)
    return set(re.findall(r"(?:callq?|jmp)\s+([A-Za-z_][\w.]*)(?:@PLT)?$", text, re.MULTILINE))


@pytest.mark.parametrize(("dtype", "target"), [("float", "cpu:avx2"), ("double", "cpu:novector")])
def test_code_of_arguments_that_a_loop_does_not_change(dtype: str, target: str) -> None:
    """Values move in front of loops, blocks do not: LLVM refuses what mixes them up."""
    for name in NAMES:
        args = ", ".join(f"A({k},t)" for k in range(N_ARGS.get(name, 1)))
        head = f"def f({dtype}(4,T) A, {dtype}(J) B) -> ({dtype}(T,J) O)"
        kernel = tcsym.define(f"{head} {{ O(t,j) = B(j) * {name}({args}) }}", target=target).f
        with Module(kernel.explain("llvm")):
            pass
