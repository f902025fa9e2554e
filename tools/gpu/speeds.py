# SPDX-License-Identifier: Apache-2.0
"""Times of calls beside torch's own, each with the time that the model predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tcsym
from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.target.names import resolve_target
from tcsym.tuning.device_space import device_space
from tools.gpu import products
from tools.gpu.case import Case
from tools.gpu.library import Library, measured

MAP = "def map(float(N,D) X) -> (O) { O(n,d) = X(n,d) * 2 + 1 }"
COPY = "def copy(float(N,D) X) -> (O) { O(n,d) = X(n,d) }"
SUM = "def row_sum(float(N,D) X) -> (S) { S(n) +=! X(n,d) }"
HISTOGRAM = "def histogram(int32(N) index) -> (int32(V) H) { H(index(n)) +=! 1 }"
BINS = 1000
# The most telling first. M, K, N.
PRODUCTS: tuple[tuple[str, products.Sizes], ...] = (
    *(("bfloat16", (4096, 4096, 4096)), ("float32", (4096, 4096, 4096))),
    *(("bfloat16", (8192, 8192, 8192)), ("bfloat16", (4096, 4098, 4096))),
    *(("tf32", (4096, 4096, 4096)), ("float16", (4096, 4096, 4096))),
    *(
        ("float32", (4097, 4095, 4097)),
        ("bfloat16", (16, 8192, 8192)),
        ("float32", (512, 512, 512)),
    ),
    *(("bfloat16", (512, 512, 512)), ("float32", (16, 8192, 8192)), ("tf32", (8192, 8192, 8192))),
)
PLANS = (
    *("WarpTiles:128x128x64x2x64x32", "WarpTiles:128x256x32x3x64x64"),
    *("WarpTiles:256x128x32x3x64x64", "WarpTiles:128x128x32x4x64x64"),
    *("SharedTiles:128x128x16x3x8x8", "SharedTiles:256x128x16x2x16x8"),
)


class Timed(NamedTuple):
    """Of a kernel whose time is that of its memory, or of its arithmetic. shapes: of arguments,
    with the end of whole numbers for int32. flops, n_bytes: of a call. free: sizes that no argument
    has."""

    name: str
    text: str
    shapes: tuple[tuple[tuple[int, ...], int], ...]
    sizes: dict[str, int]
    flops: float = 0.0
    n_bytes: float = 0.0
    free: dict[str, int] = {}  # noqa: RUF012


def _rows(name: str, text: str, n: int, d: int, weights: int = 0, passes: float = 2.0) -> Timed:
    shapes = ((n, d), 0), *[((d,), 0)] * weights
    return Timed(name, text, shapes, {"N": n, "D": d}, n_bytes=passes * 4 * n * d)


def others() -> Iterator[Timed]:
    """All but products."""
    of = tcsym.library.source
    yield _rows("copy", COPY, 16384, 16384)
    yield _rows("map", MAP, 16384, 4096)
    for n, d in ((16384, 4096), (1024, 1000), (256, 100000)):
        yield _rows("softmax", of("softmax"), n, d)
    yield _rows("layer_norm", of("layer_norm"), 16384, 4096, weights=2)
    yield _rows("row_sum", SUM, 16384, 4096, passes=1)
    n = 8192
    square = (((n, n), 0),)
    yield Timed("transpose", of("transpose"), square, {"M": n, "N": n}, n_bytes=8 * n * n)
    e, d, b, s = 100_000, 256, 64, 512
    table = (((e, d), 0), ((b, s), e))
    sizes = {"E": e, "D": d, "B": b, "L": s}
    yield Timed("embedding", of("embedding"), table, sizes, n_bytes=8 * b * s * d)
    n, sizes = 1 << 24, {"V": BINS}
    counted = (((n,), BINS),)
    yield Timed("histogram", HISTOGRAM, counted, {"N": n, **sizes}, n_bytes=4 * n, free=sizes)
    n, c, o, h = 32, 128, 128, 58
    images = (((n, c, h, h), 0), ((o, c, 3, 3), 0))
    sizes = {"N": n, "C": c, "O": o, "H": h, "W": h, "KH": 3, "KW": 3}
    flops = 2.0 * n * o * c * 9 * (h - 2) ** 2
    yield Timed("conv2d", of("conv2d"), images, sizes, flops=flops)
    b, h, s, d = 4, 16, 1024, 64
    heads = (((b, h, s, d), 0),) * 3
    sizes = {"B": b, "H": h, "L": s, "S": s, "D": d, "E": d}
    yield Timed("attention", of("attention"), heads, sizes, flops=4.0 * b * h * s * s * d)


def cases(library: Library) -> Iterator[Case]:
    rest = list(others())
    yield _other(library, rest[0])
    for kind, sizes in PRODUCTS:
        yield _product(library, kind, sizes)
    for timed in rest[1:]:
        yield _other(library, timed)
    for kind, sizes in PRODUCTS[:2]:
        known = products.nest(kind, "nn").plans
        for plan in (p for p in PLANS if p in known):
            yield _product(library, kind, sizes, plan)


def _product(library: Library, kind: str, sizes: products.Sizes, plan: str = "") -> Case:
    m, k, n = sizes = tuple(max(1, x // 64) for x in sizes) if library.is_small else sizes

    def run() -> dict[str, Any]:
        call = products.kernel(kind, "nn", plan)
        a, b = products.operands(library, kind, "nn", sizes, False)
        want = products.product(library, "nn", a, b)
        figures = products.norm(library, call(a, b), want, products.KINDS[kind].most)
        found = products.nest(kind, "nn")
        used = plan or products.plan_name(found, products.version(found, sizes))
        seconds = products.predicted(kind, "nn", sizes, plan)
        with library.as_tf32(kind == "tf32"):
            times = _beside(library, lambda: call(a, b), "product", (a, b))
        return {"plan": used, **figures, **_told(times, seconds, 2.0 * m * k * n)}

    return Case(f"{kind} {m}x{k}x{n} {plan}".rstrip(), run)


def _other(library: Library, timed: Timed) -> Case:
    timed = _smaller(timed) if library.is_small else timed
    name, text, shapes, sizes, flops, n_bytes, free = timed

    def run() -> dict[str, Any]:
        call, more = tcsym.define(text, target="cuda"), {"sizes": free} if free else {}
        given = [_argument(library, shape, end) for shape, end in shapes]
        call(*given, **more)
        times = _beside(library, lambda: call(*given, **more), name, given)
        return _told(times, predicted(text, sizes), flops, n_bytes)

    return Case(f"{name} {'x'.join(map(str, shapes[0][0]))}", run)


def _argument(library: Library, shape: tuple[int, ...], end: int) -> Any:
    if end:
        return library.whole(*shape, dtype="int32", low=0, end=end)
    return library.random(*shape)


def _smaller(timed: Timed) -> Timed:
    """Each size that is no window's, so that a rehearsal ends."""
    small = {x: max(x // 512, min(x, 6)) for s, _ in timed.shapes for x in s}
    # Positions stay inside what they are of.
    shapes = tuple((tuple(small[x] for x in s), min(e, small.get(e, e))) for s, e in timed.shapes)
    sizes = {name: small.get(x, x) for name, x in timed.sizes.items()}
    return timed._replace(shapes=shapes, sizes=sizes)


def predicted(text: str, sizes: dict[str, int]) -> float:
    """Seconds of a call, by the model."""
    (program,) = analyse(text).values()
    space = device_space(program, resolve_target("cuda"))
    values = tuple(sizes[x] for x in program.sizes)
    return space.cycles(Options(), values) / (space.target.machine.unit.mhz * 1e6)


def _beside(
    library: Library, run: Callable[[], Any], rival: str, given: Sequence[Any]
) -> list[float]:
    """Milliseconds of ours and of the library's own, if it has one."""
    other = library.rivals().get(rival)
    ways = [run] if other is None else [run, lambda: other(*given)]
    return measured(library, *ways)


def _told(
    times: Sequence[float], seconds: float, flops: float = 0.0, n_bytes: float = 0.0
) -> dict[str, Any]:
    ours, *theirs = times
    found: dict[str, Any] = {"ms": ours, "predicted_ms": 1e3 * seconds}
    if theirs:
        found |= {"torch_ms": theirs[0], "ratio": theirs[0] / ours}
    if flops:
        found["tflops"] = flops / ours / 1e9
    if n_bytes:
        found["tb_s"] = n_bytes / ours / 1e9
    return found
