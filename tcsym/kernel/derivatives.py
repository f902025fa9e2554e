# SPDX-License-Identifier: Apache-2.0
"""Kernel -> the kernels that compute its gradients and tangents."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tcsym.errors import OptionError
from tcsym.kernel.of_program import module_of_programs
from tcsym.kernel.settings import checked_options
from tcsym.kernel.warned import warnings_of
from tcsym.process.recursion import depth_checked

if TYPE_CHECKING:
    from tcsym.differentiate.derive import Gradient, Recompute
    from tcsym.frontend.program import Program, Trap
    from tcsym.kernel.kernel import Kernel
    from tcsym.kernel.module import Module
    from tcsym.kernel.settings import Settings
    from tcsym.options import Options

Wanted = str | Collection[str] | None


def gradient_module(
    kernels: Sequence[Kernel], wrt: Wanted, recompute: str, options: Options | None
) -> Module:
    """The gradients of several defs of one text. Errors: DerivativeError, OptionError."""
    from tcsym.differentiate.derive import gradient_program

    found = [_gradient(k.program, wrt, recompute) for k in kernels]
    made = [depth_checked(gradient_program)(x) for x in found]
    for x, k in zip(found, kernels, strict=True):
        _warn(x.copies, k.program)
    return _defined(made, kernels[0].settings, options)


def saving_kernel(kernel: Kernel, wrt: Wanted, recompute: str, options: Options | None) -> Kernel:
    """Errors: DerivativeError, OptionError."""
    from tcsym.differentiate.derive import saving_program

    made = depth_checked(saving_program)(_gradient(kernel.program, wrt, recompute))
    return _defined([made], kernel.settings, options)[made.name]


@depth_checked
def tangent_kernel(kernel: Kernel, wrt: Wanted, recompute: str, options: Options | None) -> Kernel:
    """Errors: DerivativeError, OptionError."""
    from tcsym.batch.functional import functional_program
    from tcsym.differentiate.derive import Recompute, tangent_program

    found = _known(recompute, [Recompute.ALL, Recompute.AUTO])
    made = tangent_program(functional_program(kernel.program), wrt, found)
    return _defined([made], kernel.settings, options)[made.name]


@depth_checked
def _gradient(program: Program, wrt: Wanted, recompute: str) -> Gradient:
    """What is updated counts as an input and an output."""
    from tcsym.batch.functional import functional_program
    from tcsym.differentiate.derive import Recompute, gradient

    return gradient(functional_program(program), wrt, _known(recompute, list(Recompute)))


def _warn(traps: Sequence[Trap], program: Program) -> None:
    """At the line of the caller."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("tcsym."):
        frame, level = frame.f_back, level + 1
    for found in warnings_of([replace(program, traps=tuple(traps))]):
        warnings.warn(found, stacklevel=level + 1)


def _known(recompute: str, among: Sequence[Recompute]) -> Recompute:
    for x in among:
        if x == recompute:
            return x
    raise OptionError(f"recompute is {recompute!r}", hint=f"one of {', '.join(among)}")


def _defined(programs: Sequence[Program], settings: Settings, options: Options | None) -> Module:
    """With what the kernel was given, but of its options, which are for another program, what
    bounds scheduling. Of one whose calls keep states of some steps, gradients keep no more than
    results."""
    recompute = "auto" if settings.recompute == "sqrt" else settings.recompute
    given = replace(settings, options=_own_options(settings, options), recompute=recompute)
    return module_of_programs(programs, given, "<derivative>")


def _own_options(settings: Settings, options: Options | None) -> Options | None:
    if options is not None:
        return checked_options(options)
    limits = None if settings.options is None else settings.options.limits
    return None if limits is None or not limits.changed() else limits
