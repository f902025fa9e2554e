"""User calls -> driver: `define`, `einsum`, `einsum_kernel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcsym.errors import OptionError, TCTypeError
from tcsym.kernel import Settings
from tcsym.module import Module
from tcsym.options import Options
from tcsym.sizes import Dim
from tcsym.strategy import Strategy, resolve_strategy
from tcsym.target import Target, resolve_target


def define(
    source: str,
    *,
    sizes: Mapping[str, Dim | int] | None = None,
    strategy: str | Strategy = "auto",
    target: str | Target | None = None,
    options: Options | None = None,
    filename: str = "<tc>",
) -> Module:
    """Read and check one or more defs; code is generated at the first call.

    sizes: for any of the sizes a fixed value (`options.bind` says if it becomes a constant of the
        code) or a `Dim` with bounds and divisibility; calls that disagree are `size` errors.
    strategy: "auto" or "symbolic": one kernel serves all sizes.
    target: "cpu" (this machine, the default), "cpu:avx512", "cpu:avx2", "cpu:novector".
    options: how to compile; never changes a result.
    filename: shown in error messages.
    Errors: TCError for whatever is wrong with the text, OptionError for the other arguments.

    Example:
        m = define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
        C = m(A, B)
    """
    if not isinstance(source, str):
        raise TCTypeError(f"`source` is {type(source).__name__}, expected the text of defs")
    if not isinstance(options, Options | None):
        raise OptionError(f"`options` is {type(options).__name__}, expected tcsym.Options")
    _require_target(target)
    return Module(
        Settings(
            source=source,
            filename=filename,
            sizes={} if sizes is None else sizes,
            strategy=resolve_strategy(strategy),
            target=target,
            options=options or Options(),
        )
    )


def _require_target(target: object) -> None:
    """Refuse an unknown target now; finding out what "cpu" means here can wait (it loads LLVM)."""
    if isinstance(target, Target) or target in (None, "cpu"):
        return
    if not isinstance(target, str):
        raise OptionError(f"target is {target!r}, expected a name such as \"cpu\"")
    resolve_target(target)
