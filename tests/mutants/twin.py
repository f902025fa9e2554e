# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants.twin`: a few programs in the twin of a device, with all checks.

Tiles are small, so that small ragged sizes have several blocks. With `--proofs` nothing runs: the
same kernels are verified, and that threads do not race is proved.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tcsym.compiler import analyse
from tcsym.errors import TCError
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program
from tcsym.index.values import evaluate
from tcsym.ir.verify import verify
from tcsym.kernel.definition import define
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_gpu import map_gpu
from tcsym.target.cuda import twin_target
from tests.fuzz.device_tiles import small_tiles

REFUSED = "a device would not run this kernel so: "


class Case(NamedTuple):
    """`sizes`: of each call, in the order of the program's."""

    text: str
    sizes: tuple[tuple[int, ...], ...]
    options: Options = Options()


STEPS = """def f(int32(T,B,H) x, int32(2,H,H) u) -> (int32(T+1,B,H) S) {
  S(0,n,h) = x(0,n,h)
  for t in T {
    a(n,q,h) max=! S(t,n,H-1-k) + u(q,k,h)
    S(t+1,n,h) = a(n,0,h) + a(n,1,H-1-h) + x(t,n,h)
  } }"""
FORWARD = """def f(float(T,B,D) x, float(B,D) I) -> (float(T+1,B,D) S) {
  S(0,b,d) = I(b,d)
  for t in T {
    m(b) max=! S(t,b,d)
    e(b,d) = exp(S(t,b,AT) - m(b))
    z(b) +=! e(b,d)
    S(t+1,b,d) = e(b,d) / z(b) * x(t,b,d)
  } }"""
THROUGH_STEPS = Options(plan="ThreadSteps")
BY_WARPS = Options(plan="t: ThreadSteps\nb_1: BlockRows:32x8")
CASES = {
    # tiles: ragged sizes, then such that copies move several elements at once
    "product": Case(
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        ((17, 13, 70), (17, 13, 64), (5, 3, 33), (32, 16, 64), (16, 4, 16)),
    ),
    "transposed": Case(
        "def f(float(K,M) A, float(N,K) B, float(N) b) -> (C) {"
        " t(m,n) +=! A(k,m) * B(n,k) C(m,n) = fmax(t(m,n) + b(n), 0.0) }",
        ((18, 11, 5), (33, 7, 19), (32, 8, 32)),
    ),
    "batches": Case(
        "def f(float(B,M,K) A, float(B,K,N) W) -> (C) { C(b,m,n) +=! (A(b,m,k) + 1) * W(b,k,n) }",
        ((3, 9, 5, 21), (2, 16, 8, 16)),
    ),
    "integers": Case(
        "def f(int32(M,K) A, int32(K,N) B) -> (C) { C(m,n) max=! (A(m,k) - 9) + (B(k,n) - 9) }",
        ((17, 5, 18), (5, 9, 33)),
    ),
    "bounded": Case(
        "def f(float(M,K) A, float(K,N) B, float(M,N) w) -> (C) {"
        " C(m,n) +=! fmax(A(m,k) * B(k,n), w(m,n)) }",
        ((17, 5, 37),),
    ),
    "windows": Case(
        "def f(float(N,C,H,W) I, float(M,C,3,3) F) -> (O) {"
        " O(n,m,h,w) +=! I(n,c,h+r,w+s) * F(m,c,r,s) }",
        ((2, 3, 6, 9, 5), (1, 5, 5, 21, 6)),
    ),
    "halves": Case(
        "def f(half(M,K) A, half(K,N) B) -> (half(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }",
        ((33, 40, 17), (9, 70, 19), (32, 64, 32)),
    ),
    "tf32": Case(
        "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        ((17, 20, 13), (32, 16, 24)),
        Options(tf32=True),
    ),
    "tf32_by_steps": Case(
        "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
        ((17, 20, 13), (32, 16, 24)),
        Options(tf32=True),
    ),
    "halves_by_steps": Case(
        "def f(half(K,M) A, half(N,K) B) -> (half(M,N) C) { C(m,n) +=! A(k,m) * B(n,k) }",
        ((33, 40, 17), (32, 64, 32)),
    ),
    # rows
    "softmax": Case(
        "def f(float(N,D) X) -> (O) { m(n) max=! X(n,d) e(n,d) = exp(X(n,d) - m(n))"
        " s(n) +=! e(n,d) O(n,d) = e(n,d) / s(n) }",
        ((3, 203), (2, 64), (11, 40), (5, 7), (2, 260), (1, 520)),
    ),
    "online": Case(
        "def f(float(N,D) X) -> (s, O) { m(n) max=! X(n,d) e(n,d) = exp(X(n,d) - m(n))"
        " s(n) +=! e(n,d) O(n,d) = e(n,d) / s(n) }",
        ((3, 203), (2, 64), (11, 40), (5, 7), (2, 260)),
        Options(plan="OnlineRows"),
    ),
    "squares": Case(
        "def f(float(N,D) X) -> (O) { s(n) +=! X(n,d) m(n) = s(n) / D c(n,d) = X(n,d) - m(n)"
        " v(n) +=! c(n,d) * c(n,d) O(n,d) = c(n,d) * v(n) }",
        ((3, 203), (11, 40), (2, 1)),
        Options(plan="OnlineRows"),
    ),
    "in_shared_memory": Case(
        "def f(float(N,D) X) -> (Y, Z) { s(n) +=! X(n,d) Y(n,d) = X(n,d) * s(n)"
        " t(n) +=! Y(n,d) Z(n,d) = Y(n,d) * t(n) + X(n,d) }",
        ((3, 203), (2, 64), (2, 260)),
        Options(plan="SharedRows"),
    ),
    "in_place": Case(
        "def f(float(N,D) X) -> (Y) { m(n) max=! X(n,d) Y(n,d) = exp(X(n,d) - m(n))"
        " s(n) +=! Y(n,d) Y(n,d) = Y(n,d) / s(n) }",
        ((3, 203),),
    ),
    "less_the_first": Case(
        "def f(float(N,D) X) -> (O) { s(n) +=! X(n,d) q(n,d) = X(n,d) * s(n)"
        " O(n,d) = q(n,d) - q(n,0) }",
        ((3, 131),),
    ),
    "neighbours": Case(
        "def f(float(N,D) X) -> (O) { s(n) +=! X(n,d) q(n,d) = X(n,d) * s(n)"
        " O(n,d) = q(n,d) + q(n,D-1-d) }",
        ((3, 131), (9, 45)),
    ),
    "short": Case(
        "def f(float(N,100) X) -> (O) { s(n) +=! X(n,d) q(n,d) = X(n,d) * s(n)"
        " O(n,d) = q(n,d) + q(n,99-d) }",
        ((3,),),
    ),
    "several": Case(
        "def f(int32(N,D) X) -> (S, M) { S(n) +=! X(n,d) M(n) min=! X(n,d) + 9 }",
        ((4, 301), (1, 100)),
    ),
    # rows whose ranges are read
    "ragged": Case(
        "def f(int32(P) off, int32(J) I, float(V,D) T) -> (Y) {"
        " Y(b,d) +=! T(I(j),d) where j in off(b):off(b+1) }",
        ((9, 40, 7, 5), (1, 3, 2, 4)),
    ),
    "ragged_rows": Case(
        "def f(int32(P) off, int32(J) I, float(J) w, float(V) x) -> (y) {"
        " y(b) +=! w(j) * x(I(j)) where j in off(b):off(b+1) }",
        ((4, 700, 9), (10, 400, 9), (12, 50, 9)),
    ),
    "ragged_steps": Case(
        "def f(int32(P) off, float(J) X) -> (Y) {"
        " Y(b) +=! X(j) * X(k) where j in off(b):off(b+1), k in off(b):j }",
        ((7, 60),),
    ),
    # terms at positions
    "counted": Case(
        "def f(int32(J) I, int32(J,D) W) -> (int32(V,D) H) { H(I(j),d) +=! W(j,d) }",
        ((40, 5, 7), (300, 3, 9)),
    ),
    "crowded": Case(
        "def f(int32(J) I, int32(J) W) -> (int32(V) H) { H(I(j)) +=! W(j) }", ((9000, 2),)
    ),
    "greatest": Case(
        "def f(int32(J,K) I, float(J,K) W) -> (float(V) H) { H(I(j,k)) max=! W(j,k) - 1 }",
        ((20, 15, 7),),
    ),
    "sorted": Case(
        "def f(int32(J) I, float(J,D) W) -> (float(V,D) G) { G(I(j),d) +=! W(j,d) }",
        ((40, 5, 7), (450, 3, 9), (700, 2, 300)),
    ),
    "sorted_products": Case(
        "def f(int32(J,K) I, int32(J,K) W) -> (int32(V,V) G) { G(I(j,k),V-1-I(j,k)) *=! W(j,k) }",
        ((24, 13, 5),),
    ),
    # points
    "points": Case(
        "def f(float(N,M,K) X) -> (Y) { Y(k,n,m) = X(n,m,k) + 0.5 }",
        ((3, 11, 17), (1, 1, 257)),
        Options(plan="ThreadPoints"),
    ),
    "turned": Case(
        "def f(float(N,M,K) X, float(M) b, int8(K,N) w) -> (Y) {"
        " Y(m,k,n) = X(n,m,k) * w(k,n) + X(n,m,k) * b(m) }",
        ((40, 3, 50), (33, 2, 32), (5, 2, 5)),
    ),
    "gathered": Case(
        "def f(float(V,D) T, int32(N) I) -> (Y) { Y(n,d) = T(I(n),d) }",
        ((4, 9, 37), (4, 3, 1)),
    ),
    "sums": Case("def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }", ((5, 300), (40, 3))),
    "total": Case("def f(float(N,M) X) -> (s) { s +=! X(i,j) }", ((3, 5), (1, 1))),
    "steps": Case(
        "def f(float(T,B) x, float(B) h0) -> (float(T,B) h) { for t in T {"
        " if t == 0 { h(t,b) = x(t,b) + h0(b) } else { h(t,b) = x(t,b) + 0.5 * h(t-1,b) } } }",
        ((4, 270), (70, 5)),
    ),
    "steps_that_meet": Case(
        "def f(int32(T,S) e, int32(S,S) w) -> (V) { for t in T {"
        " if t == 0 { V(t,s) = e(t,s) } else {"
        " V(t,s) max=! V(t-1,p) + w(p,s) V(t,s) = V(t,s) + e(t,s) } } }",
        ((4, 270), (3, 7)),
    ),
    "steps_of_rows": Case(
        FORWARD.replace("AT", "d"), ((3, 2, 70), (2, 9, 40), (4, 3, 5)), THROUGH_STEPS
    ),
    "steps_of_rows_that_meet": Case(
        FORWARD.replace("AT", "D-1-d"), ((3, 2, 70), (2, 9, 40)), BY_WARPS
    ),
    "steps_of_one_part": Case(
        "def f(float(T,B,D) x, float(B,D) I) -> (float(T+1,B,D) S) { S(0,b,d) = I(b,d)"
        " for t in T { S(t+1,b,d) max=! S(t,b,k) * x(t,b,d) } }",
        ((4, 2, 70), (3, 9, 5)),
        BY_WARPS,
    ),
    "steps_of_one_sum": Case(
        "def f(float(T,B,D) x, float(B,D) I) -> (float(T+1,B,D) S) { S(0,b,d) = I(b,d)"
        " for t in T { m(b) max=! S(t,b,d) S(t+1,b,d) = x(t,b,d) - m(b) } }",
        ((5, 2, 70), (3, 9, 40)),
        THROUGH_STEPS,
    ),
    "steps_read_behind": Case(
        "def f(float(T,B,D) x, float(B,D) I) -> (float(T+1,B,D) S, float(T,B,D) Y) {"
        " S(0,b,d) = I(b,d) for t in T { m(b) max=! S(t,b,d) S(t+1,b,d) = x(t,b,d) - m(b)"
        " Y(t,b,d) = S(t,b,d) - x(t,b,d) } }",
        ((3, 2, 70), (2, 9, 40)),
        THROUGH_STEPS,
    ),
    "steps_of_a_block": Case(STEPS, ((3, 2, 270), (4, 3, 5)), Options(plan="BlockSteps")),
    "steps_of_a_grid": Case(STEPS, ((3, 40, 70), (4, 3, 5)), Options(plan="GridSteps")),
}


def inputs_of(p: Program, sizes: dict[str, int]) -> dict[str, Any]:
    """Small whole numbers: sums of them are exact in any order."""
    rng = np.random.default_rng(len(p.name) + sum(sizes.values()))
    shapes = {t.name: (tuple(evaluate(x, sizes) for x in t.shape), t.dtype) for t in p.inputs}
    return {n: rng.integers(-3, 4, shape).astype(t.numpy) for n, (shape, t) in shapes.items()}


def run(name: str) -> None:
    """Raises what the twin finds, or where it and the interpreter differ."""
    case = CASES[name]
    with small_tiles():
        kernel = define(case.text, target="cuda:twin", strategy="symbolic", options=case.options)
        (p,) = analyse(case.text).values()
        for values in case.sizes:
            sizes = dict(zip(p.sizes, values, strict=True))
            inputs = inputs_of(p, sizes)
            if "V" in sizes:
                inputs["I"] %= sizes["V"]
            if "off" in inputs:
                off = np.random.default_rng(3).integers(0, sizes["J"] + 1, sizes["P"])
                inputs["off"] = np.sort(off).astype(np.int32)
            want = interpret(p, inputs, sizes)
            got = kernel(**inputs, sizes=sizes)
            for tensor, x in zip(want, got if isinstance(got, tuple) else (got,), strict=True):
                a, b = np.asarray(x, np.float64), np.asarray(want[tensor], np.float64)
                np.testing.assert_allclose(a, b, 1e-5, 1e-6, err_msg=f"{name} {sizes}")


def prove(name: str) -> None:
    (p,) = analyse(CASES[name].text).values()
    with small_tiles():
        naive = schedule_program(p, Options(), {}).kernel
        verify(map_gpu(naive, twin_target().machine).kernel, "device")


def failures(names: Iterator[str], check: Any) -> Iterator[str]:
    for name in names:
        try:
            check(name)
        except TCError as e:
            yield f"==== {name}: {e.message.removeprefix(REFUSED)}"
        except Exception:
            yield f"==== {name}: {traceback.format_exc(limit=-2)}"


def main() -> int:
    check = prove if "--proofs" in sys.argv else run
    found = next(failures(iter(CASES), check), "")
    if found:
        print(found, flush=True)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
