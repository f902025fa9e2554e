# SPDX-License-Identifier: Apache-2.0
"""A program of which some inputs are constants -> what runs when these are bound, and in calls.

Partial evaluation by binding time: a statement is bound if all that it reads is, and if sizes that
the constants' shapes tell are all that it depends on. What others read of its results is held.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.errors import OptionError
from tcsym.frontend.program import Item, Program, statements
from tcsym.index.expr import condition_variables, var
from tcsym.network.steps import sizes_in, touched, with_hash
from tcsym.network.storage import element_bytes, typical


class Residual(Struct, frozen=True):
    """calls: what is left for each call, with the constants and `held` among its inputs.
    binding: makes `held` of the constants; None if nothing is."""

    calls: Program
    binding: Program | None = None
    held: tuple[str, ...] = ()


def residual(program: Program, constants: Sequence[str]) -> Residual:
    """Errors: OptionError for constants that are no inputs."""
    names = [t.name for t in program.by_role("input")]
    for name in constants:
        if name not in names:
            hint = f"inputs are {', '.join(names) or 'none'}"
            raise OptionError(f"`constants` has `{name}`, which is no input", hint=hint)
    bound = _bound(program, frozenset(constants))
    items = [_is_within(item, bound) for item in program.body]
    early = tuple([x for x, is_early in zip(program.body, items) if is_early])
    late = tuple([x for x, is_early in zip(program.body, items) if not is_early])
    read = touched(late)[0]
    held = [t for t in program.tensors if t.name in bound & read and t.role == "temporary"]
    made = {t.name for t in held}
    ours = [t for t in program.tensors if t.name not in bound or t.role == "input"]
    given = [t for t in ours if t.role in ("input", "inout")]
    fixed = [*given, *[replace(t, role="input") for t in held]]
    calls = replace(
        program,
        tensors=(*fixed, *[t for t in ours if t not in given]),
        body=late,
        constants=(*[n for n in names if n in constants], *[t.name for t in held]),
    )
    if not held:
        return Residual(with_hash(replace(calls, body=program.body, tensors=program.tensors)))
    tensors = [t for t in program.tensors if t.name in constants]
    tensors += [replace(t, role="output") for t in held]
    tensors += [t for t in program.by_role("temporary") if t.name in bound - made]
    used = sizes_in((tensors, early))
    binding = replace(
        program,
        name=f"{program.name}.binding",
        sizes=tuple(n for n in program.sizes if n in used),
        free_sizes=(),
        size_parameters=(),
        tensors=tuple(tensors),
        body=early,
        checks=tuple(c for c in program.checks if condition_variables(c.condition) <= used),
    )
    return Residual(with_hash(calls), with_hash(binding), tuple(t.name for t in held))


def _bound(program: Program, constants: frozenset[str]) -> frozenset[str]:
    """The constants, and the temporaries that follow from them alone."""
    told = [e for t in program.tensors if t.name in constants for e in t.shape]
    sizes = frozenset(n for n in program.sizes if var(n) in told)
    moving = frozenset(program.sizes) - sizes
    temporaries = frozenset(
        t.name for t in program.by_role("temporary") if not sizes_in(t.shape) & moving
    )
    found = temporaries | constants
    while True:
        left = found
        for item in program.body:
            if not _is_within(item, left) or sizes_in((item,)) & moving:
                left -= touched((item,))[1]
        made = [x for x in program.body if _is_within(x, left)]
        left -= {n for x in made if not _pays(program, x, left) for n in touched((x,))[1]}
        if left == found:
            return found
        found = left


def _is_within(item: Item, bound: frozenset[str]) -> bool:
    read, written = touched((item,))
    return read | written <= bound


def _pays(program: Program, item: Item, bound: frozenset[str]) -> bool:
    """It sums, or makes no more than it reads: else calls had more to read than they save."""
    read, written = touched((item,))
    read -= written
    if any(r.reduced for s in statements((item,)) for r in s.domain):
        return bool(read)

    def weight(names: set[str]) -> int:
        found = [program.tensor(n) for n in names]
        return sum(typical(element_bytes(t.dtype, t.shape)) for t in found)

    return bool(read) and weight(written) <= weight(read)
