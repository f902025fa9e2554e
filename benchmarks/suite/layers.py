# SPDX-License-Identifier: Apache-2.0
"""Layers of docs/gallery.md at sizes of small networks: forward and backward passes together."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.case import Case, Draw, Input, Sizes, indices, normal, uniform
from benchmarks.suite.training import SUFFIX_OF_STEPS, in_double

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "gallery.md"
_FILTER = ("KH", "KW", "K")  # stay as they are
_TEXTS = {
    m[1]: m[0] for m in re.finditer(r"^def (\w+)\((?:.|\n)*?^}", _PAGE.read_text(), re.MULTILINE)
}


def _layer(name: str, inputs: tuple[Input, ...], fixed: tuple[str, ...] = (), **sizes: int) -> Case:
    """Random sizes are an eighth of these to twice them. fixed: those that stay."""
    kept = (*_FILTER[:2], *fixed)
    ranges: dict[str, Draw] = {
        n: v if n in kept else (max(1, v // 8), 2 * v) for n, v in sizes.items()
    }
    given: Sizes = sizes
    return Case(
        name + SUFFIX_OF_STEPS,
        "layers",
        _TEXTS[name],
        inputs,
        lambda *arrays: in_double(name + SUFFIX_OF_STEPS, arrays),
        "0",
        {name + SUFFIX_OF_STEPS: given},
        ranges,
        part="layers",
        tolerance=2e-3,
    )


_LINEAR = (normal("B K"), normal("N K", 0.05))

LAYERS = (
    _layer("linear_relu", (*_LINEAR, normal("N")), B=128, K=512, N=512),
    _layer("swiglu", (*_LINEAR, normal("N K", 0.05)), B=128, K=256, N=512),
    _layer(
        "highway",
        (normal("B N"), *(normal("N N", 0.05), normal("N")) * 2),
        B=128,
        N=256,
    ),
    _layer(
        "bilinear", (normal("B I"), normal("B J"), normal("O I J", 0.05)), B=64, I=64, J=64, O=32
    ),
    _layer("layer_norm", (normal("N D"), normal("D"), normal("D")), N=1024, D=768),
    _layer("add_rms_norm", (normal("N D"), normal("N D"), normal("D")), N=1024, D=768),
    _layer("instance_norm", (normal("N C H W"),), N=8, C=32, H=56, W=56),
    _layer(
        "squeeze_excite",
        (normal("N C H W"), normal("R C", 0.1), normal("C R", 0.1)),
        N=8,
        C=64,
        R=16,
        H=28,
        W=28,
    ),
    _layer(
        "conv2d_same",
        (normal("N C H W"), normal("O C KH KW", 0.05), normal("O")),
        N=4,
        C=32,
        H=28,
        W=28,
        O=64,
        KH=3,
        KW=3,
    ),
    _layer(
        "separable",
        (normal("N C H W"), normal("C KH KW"), normal("O C", 0.1)),
        N=4,
        C=64,
        H=30,
        W=30,
        KH=3,
        KW=3,
        O=64,
    ),
    _layer(
        "conv1d_causal",
        (normal("N C T"), normal("O C K", 0.1)),
        ("K",),
        N=4,
        C=32,
        T=500,
        O=64,
        K=3,
    ),
    _layer(
        "patches",
        (normal("N C H W"), normal("E C 16 16", 0.05)),
        ("H", "W"),
        N=4,
        C=3,
        H=128,
        W=128,
        E=192,
    ),
    _layer("pool", (normal("N C H W"),), N=8, C=64, H=57, W=57),
    _layer(
        "grouped_query_attention",
        (normal("B G Q L D"), normal("B G S D"), normal("B G S D")),
        ("D",),
        B=2,
        G=4,
        Q=2,
        L=128,
        S=128,
        D=64,
    ),
    _layer("causal_attention", (normal("B H L D"),) * 3, ("D",), B=2, H=8, L=128, D=64),
    _layer("rotary", (normal("B L H 2 D"), normal("L D")), B=4, L=128, H=8, D=32),
    _layer(
        "lstm",
        (
            *(normal("T B I"), normal("B H"), normal("B H")),
            *(normal("4 H I", 0.05), normal("4 H H", 0.05), normal("4 H")),
        ),
        T=32,
        B=16,
        I=128,
        H=128,
    ),
    _layer(
        "embedding_bag",
        (normal("E D"), indices("B L", below="E"), normal("B L")),
        E=5000,
        D=64,
        B=64,
        L=32,
    ),
    _layer("graph_conv", (normal("V K"), uniform("V V"), normal("M K", 0.1)), V=300, K=64, M=64),
    _layer("cosine", (normal("N D"), normal("M D")), N=256, D=128, M=256),
    _layer(
        "deep_set", (normal("B N K"), uniform("B N"), normal("H K", 0.1)), B=32, N=50, K=64, H=128
    ),
)
