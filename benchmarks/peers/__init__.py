# SPDX-License-Identifier: Apache-2.0
"""Contestants: our kernels, and what a user of each other library would write.

Every peer is optional. Those of one `home` share a process and its arrays, so rounds alternate
within it; the others have a process each, and rounds alternate between processes.
"""

from __future__ import annotations

from msgspec import Struct


class PeerEntry(Struct, frozen=True):
    """place: module and function. packages: from the index, for the environment and the record."""

    place: tuple[str, str]
    packages: tuple[str, ...] = ()
    home: str = "shared"
    in_quick: bool = True
    part: str = ""  # of the suite, that alone it takes part in
    every_size: bool = (
        True  # false: compiles so slowly for each size that random sizes leave it out
    )


PEERS = {
    "tcsym": PeerEntry(("benchmarks.peers.with_tcsym", "contestants"), ("tcsym",)),
    "substituted": PeerEntry(
        ("benchmarks.peers.with_tcsym", "substituted"), ("tcsym",), every_size=False
    ),
    "numpy": PeerEntry(("benchmarks.peers.with_numpy", "contestants"), ("numpy", "opt_einsum")),
    "scipy": PeerEntry(("benchmarks.peers.with_scipy", "contestants"), ("scipy",)),
    "torch": PeerEntry(("benchmarks.peers.with_torch", "contestants"), ("torch",)),
    "compile": PeerEntry(
        ("benchmarks.peers.with_torch", "static"), ("torch",), in_quick=False, every_size=False
    ),
    "compile-dynamic": PeerEntry(
        ("benchmarks.peers.with_torch", "dynamic"), ("torch",), in_quick=False
    ),
    "numba": PeerEntry(("benchmarks.peers.with_numba", "contestants"), ("numba",), in_quick=False),
    "jax": PeerEntry(("benchmarks.peers.with_jax", "contestants"), ("jax", "jaxlib"), "jax"),
    "halide": PeerEntry(
        ("benchmarks.peers.with_halide", "contestants"),
        ("halide",),
        "halide",
        in_quick=False,
        every_size=False,
    ),
    "tcsym-train": PeerEntry(("benchmarks.peers.training", "ours"), ("tcsym",), part="training"),
    "torch-train": PeerEntry(("benchmarks.peers.training", "eager"), ("torch",), part="training"),
    "compile-train": PeerEntry(
        ("benchmarks.peers.training", "compiled"),
        ("torch",),
        in_quick=False,
        part="training",
        every_size=False,
    ),
    "jax-train": PeerEntry(
        ("benchmarks.peers.training", "in_jax"), ("jax", "jaxlib"), "jax", part="training"
    ),
}
OURS = ("tcsym", "tcsym out=", "tcsym after", "tcsym before")
