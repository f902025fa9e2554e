"""`define`: text -> module.

Where an earlier process kept how calls of the text are served, hardly anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tcsym.kernel import ready_kernels
from tcsym.module import Module, module_of
from tcsym.ready import ready

if TYPE_CHECKING:
    from tcsym.options import Options
    from tcsym.settings import Settings
    from tcsym.sizes import Dim
    from tcsym.strategy import Strategy
    from tcsym.target import Target


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
    target: "cpu" (this machine, the default), "cpu:avx512bf16" (and VNNI), "cpu:avx512",
        "cpu:avx2", "cpu:novector".
    options: how to compile; never changes a result.
    filename: shown in error messages.
    Errors: TCError for whatever is wrong with the text, OptionError for the other arguments.

    Example:
        m = define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
        C = m(A, B)
    """

    def settings() -> Settings:
        from tcsym.settings import given_settings

        return given_settings(source, filename, sizes, strategy, target, options)

    # What was kept is of the default target and options, for any sizes.
    plain = sizes is None and options is None and target in (None, "cpu")
    if plain and isinstance(source, str) and strategy in ("auto", "symbolic"):
        kept = ready(source, counted=strategy == "auto")
        if kept is not None:
            return Module(ready_kernels(kept, settings))
    return module_of(settings())
