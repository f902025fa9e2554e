"""Kernel -> the kernels that compute its gradients and tangents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tcsym.errors import OptionError
from tcsym.process.recursion import deep_recursion

if TYPE_CHECKING:
    from tcsym.differentiate.derive import Recompute
    from tcsym.frontend.program import Program
    from tcsym.kernel.kernel import Kernel
    from tcsym.kernel.module import Module
    from tcsym.kernel.settings import Settings

Wanted = str | Collection[str] | None


def gradient_kernel(program: Program, settings: Settings, wrt: Wanted, recompute: str) -> Kernel:
    """Errors: DerivativeError, OptionError."""
    text = gradient_source(program, wrt, recompute)
    return _defined([text], settings)[f"{program.name}_grad"]


def saving_kernel(program: Program, settings: Settings, wrt: Wanted, recompute: str) -> Kernel:
    """Errors: DerivativeError, OptionError."""
    text = saving_source(program, wrt, recompute)
    return _defined([text], settings)[f"{program.name}_saving"]


def tangent_kernel(program: Program, settings: Settings, wrt: Wanted) -> Kernel:
    """Errors: DerivativeError."""
    text = tangent_source(program, wrt)
    return _defined([text], settings)[f"{program.name}_jvp"]


def gradient_module(kernels: Sequence[Kernel], wrt: Wanted, recompute: str) -> Module:
    """The gradients of several defs of one text. Errors: DerivativeError, OptionError."""
    texts = [gradient_source(k.program, wrt, recompute) for k in kernels]
    return _defined(texts, kernels[0].settings)


@deep_recursion
def gradient_source(program: Program, wrt: Wanted, recompute: str) -> str:
    from tcsym.differentiate.derive import gradient, gradient_program

    made = gradient(_without_updates(program), wrt, _known(recompute))
    return gradient_program(made).source


@deep_recursion
def saving_source(program: Program, wrt: Wanted, recompute: str) -> str:
    from tcsym.differentiate.derive import gradient, saving_program

    made = gradient(_without_updates(program), wrt, _known(recompute))
    return saving_program(made).source


def _known(recompute: str) -> Recompute:
    from tcsym.differentiate.derive import Recompute

    if recompute not in list(Recompute):
        hint = f"one of {', '.join(Recompute)}"
        raise OptionError(f"recompute is {recompute!r}", hint=hint)
    return Recompute(recompute)


@deep_recursion
def tangent_source(program: Program, wrt: Wanted) -> str:
    from tcsym.differentiate.derive import tangent_program

    return tangent_program(_without_updates(program), wrt).source


def _without_updates(program: Program) -> Program:
    """What is updated becomes an input and an output."""
    if not program.inouts:
        return program
    from tcsym.batch.functional import functional_source
    from tcsym.compiler import analyse

    return analyse(functional_source(program.source, program.name))[program.name]


def _defined(texts: list[str], settings: Settings) -> Module:
    """With what the kernel was given; its options are for another program. Of one whose calls keep
    states of some steps, gradients keep no more than results."""
    from tcsym.kernel.analysed import analysed
    from tcsym.kernel.definition import define

    source = "\n".join(texts)
    programs = analysed(source, "<derivative>")
    known = {name for p in programs.values() for name in p.sizes}
    sizes = {name: size for name, size in settings.sizes.items() if name in known}
    return define(
        source,
        sizes=sizes or None,
        strategy=settings.strategy,
        target=settings.target,
        recompute="auto" if settings.recompute == "sqrt" else settings.recompute,
        filename="<derivative>",
    )
