# SPDX-License-Identifier: Apache-2.0
"""Three layers written as strings, each compiled once and run on real data of many sizes.

Photographs come with scikit-image, the sentences with Python itself. Everything printed is measured
in this run: the time of a call, of numpy for the same, and the largest error against the reference.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import tcsym as tc

Array = NDArray[np.float32]

CONVOLUTION = """
def block(float(C,H,W) X, float(G,D,C,KH,KW) K, float(G,D) b, float(G,D) gamma, float(G,D) beta)
    -> (O) {
  Y(g,d,h,w) +=! X(c, h + kh, w + kw) * K(g,d,c,kh,kw)
  Y(g,d,h,w) = max(Y(g,d,h,w) + b(g,d), 0)
  n +=! 1 where d in 0:D, h in 0:H - KH + 1, w in 0:W - KW + 1
  mean(g) +=! Y(g,d,h,w)
  mean(g) = mean(g) / n
  var(g) +=! (Y(g,d,h,w) - mean(g)) * (Y(g,d,h,w) - mean(g))
  O(g,d,h,w) = (Y(g,d,h,w) - mean(g)) * rsqrt(var(g) / n + 1e-5) * gamma(g,d) + beta(g,d)
}
"""

RECURRENT = """
def elman(uint8(T) text, float(256,E) table, float(H,E) Wx, float(H,H) Wh, float(H) b)
    -> (float(T,H) h) {
  for t in T {
    z(i) +=! table(text(t), e) * Wx(i,e)
    if t > 0 { z(i) += h(t-1,j) * Wh(i,j) }
    h(t,i) = tanh(z(i) + b(i))
  }
}
"""

LINEAR = """
def linear(float(B,K) X, float(K,N) W, float(N) b) -> (Y) {
  Y(i,j) +=! X(i,k) * W(k,j)
  Y(i,j) = max(Y(i,j) + b(j), 0)
}
"""


@dataclass(frozen=True)
class Layer:
    title: str
    source: str
    inputs: list[tuple[str, tuple[NDArray[np.generic], ...]]]  # label, arguments
    numpy: Callable[..., Array]


def weights(*shape: int) -> Array:
    """Random weights scaled by the fan-in."""
    rng = np.random.default_rng(sum(shape))
    fan_in = int(np.prod(shape[1:])) or 1
    return (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def photographs() -> Iterator[tuple[str, Array]]:
    """(label, channels first image in 0..1) for crops of three photographs."""
    import skimage.data

    rng = np.random.default_rng(0)
    for name in ("astronaut", "coffee", "chelsea"):
        picture = getattr(skimage.data, name)()
        for _ in range(2):
            height, width = rng.integers(24, 120, 2)
            top = rng.integers(0, picture.shape[0] - height)
            left = rng.integers(0, picture.shape[1] - width)
            crop = picture[top : top + height, left : left + width].astype(np.float32) / 255
            yield f"{name} {height}x{width}", np.ascontiguousarray(crop.transpose(2, 0, 1))


def sentences() -> list[bytes]:
    """The lines of the Zen of Python."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this

    text = codecs.decode(this.s, "rot13")
    return [line.encode() for line in text.splitlines() if line]


def convolution_numpy(X: Array, K: Array, b: Array, gamma: Array, beta: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(X, K.shape[3:], axis=(1, 2))
    Y = np.einsum("chwyx,gdcyx->gdhw", windows, K, optimize=True)
    Y = np.maximum(Y + b[:, :, None, None], 0)
    mean = Y.mean((1, 2, 3), keepdims=True)
    variance = Y.var((1, 2, 3), keepdims=True)
    normal = (Y - mean) / np.sqrt(variance + 1e-5)
    return normal * gamma[:, :, None, None] + beta[:, :, None, None]


def recurrent_numpy(text: NDArray[np.uint8], table: Array, Wx: Array, Wh: Array, b: Array) -> Array:
    h = np.zeros((len(text), len(b)), np.float32)
    for t, byte in enumerate(text):
        before = Wh @ h[t - 1] if t else 0
        h[t] = np.tanh(Wx @ table[byte] + before + b)
    return h


def linear_numpy(X: Array, W: Array, b: Array) -> Array:
    return np.maximum(X @ W + b, 0)


def layers() -> list[Layer]:
    filters = (weights(2, 4, 3, 3, 3), weights(2, 4), weights(2, 4) + 1, weights(2, 4))
    cell = (weights(256, 64), weights(128, 64), weights(128, 128), weights(128))
    dense = (weights(300, 200), weights(200))
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((n, 300), dtype=np.float32) for n in (1, 7, 32, 100, 333)]
    texts = sorted(sentences(), key=len)[::4]
    return [
        Layer(
            "convolution + bias + relu + group normalisation, photographs",
            CONVOLUTION,
            [(label, (image, *filters)) for label, image in photographs()],
            convolution_numpy,
        ),
        Layer(
            "byte embedding + Elman recurrent network, sentences",
            RECURRENT,
            [(f"{len(s)} bytes", (np.frombuffer(s, np.uint8), *cell)) for s in texts],
            recurrent_numpy,
        ),
        Layer(
            "linear layer, ragged batches",
            LINEAR,
            [(f"{len(x)} rows", (x, *dense)) for x in batches],
            linear_numpy,
        ),
    ]


def best_milliseconds(run: Callable[[], object]) -> float:
    """Least of several calls, after one that is not counted."""
    run()
    times = []
    stop = time.perf_counter() + 0.1
    while len(times) < 3 or time.perf_counter() < stop:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def show(layer: Layer, console: Console) -> None:
    start = time.perf_counter()
    kernel = tc.define(layer.source)
    first = kernel(*layer.inputs[0][1])
    cold = (time.perf_counter() - start) * 1e3
    del first
    table = Table(title=layer.title, title_justify="left")
    for column in ("size", "tcsym ms", "numpy ms", "numpy / tcsym", "largest error"):
        table.add_column(column, justify="left" if column == "size" else "right")
    for label, arguments in layer.inputs:
        result = kernel(*arguments)
        error = np.abs(result - kernel.reference(*arguments)).max()
        ours = best_milliseconds(lambda a=arguments: kernel(*a))
        theirs = best_milliseconds(lambda a=arguments: layer.numpy(*a))
        table.add_row(label, f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.1f}", f"{error:.1e}")
    console.print(table)
    console.print(
        f"from text to first result {cold:.0f} ms; "
        f"compilations for all {len(layer.inputs)} sizes: {kernel.stats.compilations}\n"
    )


def fused_loops(source: str) -> str:
    """The loops that its statements share, before they are tiled; a few lines."""
    kernel = tc.define(source)
    text = kernel.explain("loops")
    loops = text[text.index("serial") :].rstrip()
    sizes = ", ".join(kernel.sizes)
    return (
        f"One nest of loops for all {sizes}, in which every statement runs where its value is at "
        f'hand:\n\n{loops}\n\nFrom them come tiles, vectors and threads: kernel.explain("mapped").'
    )


def main() -> None:
    console = Console(width=100)
    for layer in layers():
        show(layer, console)
    console.rule("what the linear layer became")
    console.print(fused_loops(LINEAR), markup=False, highlight=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as nothing_compiled_yet:
        os.environ["TCSYM_CACHE_DIR"] = nothing_compiled_yet
        main()
