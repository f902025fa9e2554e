# SPDX-License-Identifier: Apache-2.0
"""Texts as they are thought beside texts that help the compiler: `./dev bench forms`.

Each form is written twice: once as the formula reads, and once with the detour that a user would
take where a compiler maps the formula badly (a temporary, a copy in another order, two kernels, a
number in the place of a size). One thread; both take turns; a ratio is the time of the plain text
over that of the detour: above 1 the detour pays.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

import tcsym

TURNS, SECONDS = 9, 0.01
Call = Callable[[], Any]


class Form(Struct, frozen=True):
    """detour: texts, the last of which gets the result of one before it. given: the arguments."""

    name: str
    plain: str
    detour: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    given: Callable[..., list[Any]]
    has_number: bool = False  # the last argument is a number in the detour's text


def floats(*shapes: tuple[int, ...]) -> list[Any]:
    r = np.random.default_rng(0)
    return [r.standard_normal(s).astype(np.float32) for s in shapes]


def bytes_(m: int, k: int, n: int) -> list[Any]:
    packed = np.random.default_rng(0).integers(0, 256, (n, k // 2)).astype(np.uint8)
    return [*floats((m, k)), packed]


def positions(n: int, c: int, h: int, w: int, p: int) -> list[Any]:
    r = np.random.default_rng(0)
    places = [(r.random(p) * (x - 1)).astype(np.float32) for x in (h, w)]
    return [*floats((n, c, h, w)), *places]


FEW = ((8, 512, 700), (3, 333, 1000), (31, 256, 513))
PRODUCT = "def f(float(M,K) A, float(K,N) B) -> (C) {{ {} }}"
CONVOLVED = """def f(float(N,C,H,W) X, float(O,C,KH,KW) G{}) -> (Y) {{
  Y(n,o,y,x) +=! X(n,c,{}) * G(o,c,i,j) }}"""
NIBBLE = "float((W(n,k/2) >> uint8(4*(k%2))) & 15)"
ROUTED = """g(n,e) +=! X(n,k) * R(k,e)
  best(n) max=! g(n,e)
  chosen(n) min=! (g(n,e) == best(n) ? int32(e) : 2147483647)"""
EXPERT = "Y(n,m) +=! X(n,k) * W(chosen(n),m,k)"
WINDOW = "y+i >= 3 && y+i < H+3 && x+j >= 3 && x+j < W+3"


def _bilinear(v: str, u: str, row: str, column: str) -> str:
    """Of the four neighbours of a position, by their weights."""
    corners = (
        (f"(1-{v})*(1-{u})", row, column),
        (f"(1-{v})*{u}", row, f"{column}+1"),
        (f"{v}*(1-{u})", f"{row}+1", column),
        (f"{v}*{u}", f"{row}+1", f"{column}+1"),
    )
    return " + ".join(f"{weight}*X(n,c,{y},{x})" for weight, y, x in corners)


def _strided(name: str, place: str) -> Form:
    """The detour has a number for STEP."""
    plain = CONVOLVED.format(", size S", place.replace("STEP", "S"))
    return Form(
        name,
        plain,
        (CONVOLVED.format("", place),),
        ((1, 32, 56, 57, 48, 3, 2), (2, 16, 41, 40, 32, 5, 2), (1, 24, 60, 61, 64, 3, 3)),
        lambda n, c, h, w, o, k, s: [*floats((n, c, h, w), (o, c, k, k)), s],
        True,
    )


FORMS = (
    Form(
        "lanes across memory",
        """def f(float(N,H,W,C) X, float(C,KH,KW) D) -> (O) {
  O(n,h,w,c) +=! X(n,h+i,w+j,c) * D(c,i,j) }""",
        (
            """def f(float(N,H,W,C) X, float(C,KH,KW) D) -> (T, O) {
  T(i,j,c) = D(c,i,j)
  O(n,h,w,c) +=! X(n,h+i,w+j,c) * T(i,j,c) }""",
        ),
        ((2, 30, 34, 48, 3), (1, 56, 57, 64, 3), (4, 17, 15, 130, 5)),
        lambda n, h, w, c, k: floats((n, h, w, c), (c, k, k)),
    ),
    Form(
        "function of a factor",
        PRODUCT.format("C(i,j) +=! exp(A(i,k)) * B(k,j)"),
        (PRODUCT.format("E(i,k) = exp(A(i,k))  C(i,j) +=! E(i,k) * B(k,j)"),),
        FEW,
        lambda m, k, n: floats((m, k), (k, n)),
    ),
    Form(
        "function of a factor, triangle",
        PRODUCT.format("C(i,j) +=! exp(A(i,k)) * B(k,j) where k in 0:min(K, i+1)"),
        (
            PRODUCT.format(
                "E(i,k) = exp(A(i,k))  C(i,j) +=! E(i,k) * B(k,j) where k in 0:min(K, i+1)"
            ),
        ),
        ((200, 200, 128), (24, 24, 300), (333, 333, 65)),
        lambda m, k, n: floats((m, k), (k, n)),
    ),
    Form(
        "bytes that are unpacked",
        f"""def f(float(M,K) X, uint8(N,H) W) -> (C) {{
  C(m,n) +=! X(m,k) * {NIBBLE} where k in 0:K }}""",
        (
            f"""def f(float(M,K) X, uint8(N,H) W) -> (U, C) {{
  U(n,k) = {NIBBLE} where k in 0:K
  C(m,n) +=! X(m,k) * U(n,k) }}""",
        ),
        ((2, 512, 700), (8, 320, 512), (32, 256, 1000), (40, 256, 1000)),
        bytes_,
    ),
    _strided("size as a step", "STEP*y+i,STEP*x+j"),
    _strided("size as a dilation", "y+STEP*i,x+STEP*j"),
    Form(
        "positions shared by channels",
        f"""def f(float(N,C,H,W) X, float(P) y, float(P) x) -> (O) {{
  O(n,c,p) = {
            _bilinear(
                "(y(p)-float(int32(y(p))))",
                "(x(p)-float(int32(x(p))))",
                "int32(y(p))",
                "int32(x(p))",
            )
        } }}""",
        (
            f"""def f(float(N,C,H,W) X, float(P) y, float(P) x) -> (a, b, i, j, O) {{
  i(p) = int32(y(p))
  j(p) = int32(x(p))
  a(p) = y(p) - float(i(p))
  b(p) = x(p) - float(j(p))
  O(n,c,p) = {_bilinear("a(p)", "b(p)", "i(p)", "j(p)")} }}""",
        ),
        ((2, 32, 40, 41, 1000), (1, 128, 56, 57, 800), (4, 3, 100, 90, 3000)),
        positions,
    ),
    Form(
        "product of the chosen expert",
        f"""def f(float(N,K) X, float(K,E) R, float(E,M,K) W) -> (Y) {{
  {ROUTED}
  {EXPERT} }}""",
        (
            f"def f(float(N,K) X, float(K,E) R) -> (chosen) {{ {ROUTED} }}",
            f"def f(float(N,K) X, float(E,M,K) W, int32(N) chosen) -> (Y) {{ {EXPERT} }}",
        ),
        ((256, 128, 8, 256), (64, 256, 4, 512), (500, 64, 16, 128)),
        lambda n, k, e, m: floats((n, k), (k, e), (e, m, k)),
    ),
    Form(
        "padded depthwise windows",
        f"""def f(float(N,C,H,W) X, float(C,7,7) D) -> (float(N,C,H,W) O) {{
  O(n,c,y,x) +=! ({WINDOW} ? X(n,c,y+i-3,x+j-3) : 0) * D(c,i,j) }}""",
        (
            """def f(float(N,C,H,W) X, float(C,7,7) D) -> (T, float(N,C,H,W) O) {
  T(n,c,y,x) = (y >= 3 && y < H+3 && x >= 3 && x < W+3 ? X(n,c,y-3,x-3) : 0)
      where y in 0:H+6, x in 0:W+6
  O(n,c,y,x) +=! T(n,c,y+i,x+j) * D(c,i,j) }""",
        ),
        ((1, 32, 28, 28), (2, 64, 14, 14), (1, 16, 56, 57), (4, 96, 56, 56)),
        lambda n, c, h, w: floats((n, c, h, w), (c, 7, 7)),
    ),
)


def calls(form: Form, sizes: tuple[int, ...]) -> tuple[Call, Call]:
    """Contract: results are alike."""
    given = form.given(*sizes)
    plain = tcsym.define(form.plain, strategy="symbolic").f
    texts, inputs = form.detour, given
    if form.has_number:
        inputs, number = given[:-1], given[-1]
        texts = tuple(x.replace("STEP", str(number)) for x in texts)
    kernels = [tcsym.define(t, strategy="symbolic").f for t in texts]

    def detour() -> Any:
        first = kernels[0](*(inputs if len(kernels) == 1 else inputs[:2]))
        if len(kernels) == 1:
            return first[-1] if isinstance(first, tuple) else first
        return kernels[1](inputs[0], inputs[2], first)

    np.testing.assert_allclose(plain(*given), detour(), rtol=1e-3, atol=1e-3)
    return lambda: plain(*given), detour


def seconds(call: Call, n: int) -> float:
    start = time.thread_time()
    for _ in range(n):
        call()
    return (time.thread_time() - start) / n


def ratios(form: Form) -> Iterator[tuple[tuple[int, ...], float, float, float]]:
    """Sizes, the ratio, and the least seconds of a call of either."""
    for sizes in form.sizes:
        both = calls(form, sizes)
        n = max(1, int(SECONDS / max(1e-6, *(seconds(x, 2) for x in both))))
        taken = [[seconds(x, n) for x in both] for _ in range(TURNS)]
        plain, detour = map(min, zip(*taken))
        yield sizes, plain / detour, plain, detour


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench forms", description=__doc__)
    parser.add_argument("--only", default="", help="forms whose name has it")
    only = parser.parse_args(given).only
    tcsym.set_num_threads(1)
    for form in FORMS:
        if only in form.name:
            for sizes, ratio, plain, detour in ratios(form):
                times = f"{plain * 1e3:9.4f} / {detour * 1e3:9.4f} ms"
                print(f"{ratio:5.2f}  {times}  {form.name} {sizes}", flush=True)
    return 0
