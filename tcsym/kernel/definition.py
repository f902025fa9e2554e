# SPDX-License-Identifier: Apache-2.0
"""`define`: text -> module.

Where an earlier process kept how calls of the text are served, hardly anything is loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING

from tcsym.kernel.module import Module, module_of, ready_module
from tcsym.kernel.ready import ready
from tcsym.process.forks import inside
from tcsym.process.outside_graphs import outside_graphs

if TYPE_CHECKING:
    from typing import TypedDict

    from tcsym.kernel.settings import Settings
    from tcsym.options import Options
    from tcsym.sizes.dims import Dim
    from tcsym.strategy import Strategy
    from tcsym.target.target import Target

    class Defined(TypedDict, total=False):
        """Arguments of `define` that others pass on."""

        sizes: Mapping[str, Dim | int | range] | None
        strategy: str | Strategy
        target: str | Target | None
        options: Options | None
        recompute: str


_WRITTEN_HERE = ("<einsum>", "<trace>")  # names of texts that no user wrote


@outside_graphs
@inside
def define(
    source: str | PathLike[str],
    *,
    sizes: Mapping[str, Dim | int | range] | None = None,
    strategy: str | Strategy = "auto",
    target: str | Target | None = None,
    options: Options | None = None,
    plan: str | None = None,
    recompute: str = "cheap",
    filename: str = "<tc>",
) -> Module:
    """Read and check one or more defs; code is generated when a call first needs it.

    source: the text of defs (docs/language.md), or a path such as `pathlib.Path("mm.tc")`, whose
        file is read as UTF-8.
    sizes: what is known of sizes, by name. An integer fixes a size; a `tcsym.Dim` or a `range`
        bounds it: `{"B": range(1, 129), "K": tcsym.Dim(multiple_of=16), "C": 256}`. Others may
        have any value. Calls that disagree are `size` errors.
    strategy: which versions of the code there are, and when they are made; never changes a result.
        "auto": one for all sizes, and others beside it where they were measured to be faster.
        "symbolic": one for all sizes. "specialize": one for each sizes that turn up. "bucket":
        one for each part of the declared ranges. "pad": inputs are padded to few sizes. Or an
        object of `tcsym.strategy` with arguments, as `tcsym.strategy.Specialize(background=True)`.
    target: "cpu" (what this machine has, the default), or no more than its name says:
        "cpu:avx512bf16" (and VNNI), "cpu:avx512", "cpu:avx2", "cpu:neon", "cpu:novector". Or
        "cuda" and its kinds (docs/cuda.md).
    options: a `tcsym.Options`, in place of tuned ones; never changes a result. `Options()` are the
        defaults. `Options(bind=...)`, which says what sizes become numbers in the code, and has
        nothing else, leaves tuned ones in force.
    plan: how loops are tiled, ordered and copied, as `explain("plan")` prints it (docs/plans.md):
        short for `Options(plan=...)`.
    recompute: what gradients of calls that torch or JAX records compute again, as `kernel.grad` has
        it: "auto", all but outputs; "cheap", what one pass makes of what is kept; "all"; "none";
        "sqrt", states of long loops, from those of about sqrt(T) steps that are kept.
    filename: shown in error messages; for a path, the path.

    Returns a `Module`: a mapping of names to kernels, `m["mm"]` or `m.mm`. With a single def it is
    that kernel, too. A kernel takes arrays of numpy, torch and whatever has DLPack or the buffer
    protocol, in declaration order or by name, and returns one array for one output, else a named
    tuple, of the kind that came in. See `help(tcsym.Kernel)` for calls, `compile`, `tune`,
    `explain` and `reference`.

    Errors, all of them `tcsym.TCError` with kind, line, column and hint (docs/errors.md):
    TCSyntaxError, TCNameError, TCTypeError, RangeError and so on for what is wrong with the text;
    TCTypeError if `source` is neither text nor a path; SizeError for `sizes`; OptionError for
    `strategy`, `target`, `options`, `plan`, `recompute` and a file that cannot be read; TargetError
    for a target that there is none of.

    Examples:
        mm = define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
        C = mm(A, B)
        layers = define(pathlib.Path("layers.tc"), sizes={"B": range(1, 129)}, strategy="bucket")
        y = layers.linear(x, W, b)
    """
    if isinstance(source, PathLike):
        from tcsym.kernel.settings import text_of_file

        filename = fspath(source) if filename == "<tc>" else filename
        source = text_of_file(source)

    def settings() -> Settings:
        from tcsym.kernel.settings import given_settings, with_plan

        given = options if plan is None else with_plan(options, plan)
        return given_settings(source, filename, sizes, strategy, target, given, recompute)

    # What was kept is of the default target and options, for any sizes.
    plain = sizes is None and options is None and plan is None
    plain = plain and target in (None, "cpu") and recompute == "cheap"
    if plain and isinstance(source, str) and strategy in ("auto", "symbolic"):
        kept = ready(source, counted=strategy == "auto")
        if kept is not None:
            return ready_module(kept, settings)
    module = module_of(settings())
    for found in module.warnings if filename not in _WRITTEN_HERE else ():
        warnings.warn(found, stacklevel=4)  # at the caller, beyond what wraps this function
    return module
