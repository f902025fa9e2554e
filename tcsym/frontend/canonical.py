# SPDX-License-Identifier: Apache-2.0
"""Resolved program -> hash of its meaning: names, comments, spaces, lets and parentheses left out.

All names are replaced in an order that the names do not influence (declaration, then text), and the
renamed program is normalised again, so two programs that differ in spelling only become equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.rename import Renaming
from tcsym.frontend.resolved import (
    LATER,
    ResolvedFor,
    ResolvedIf,
    ResolvedItem,
    ResolvedProgram,
    ResolvedStatement,
    ResolvedTensor,
    SizeArgument,
    Unify,
    inner_sizes,
)
from tcsym.index.values import condition_substitute
from tcsym.keyed import key_fields


def canonical_hash(program: ResolvedProgram) -> str:
    """64 hexadecimal digits, equal for programs that are equal up to names."""
    text = "\n".join(_tokens(canonical_program(program)))
    return hashlib.sha256(text.encode()).hexdigest()


def _tokens(program: ResolvedProgram) -> Iterator[str]:
    """The tree in prefix form, by class and fields that compare; from a stack, not by recursion."""
    todo: list[object] = [program]
    while todo:
        top = todo.pop()
        if isinstance(top, tuple):
            yield f"tuple {len(top)}"
            todo += top[::-1]
        elif isinstance(top, Struct):
            yield type(top).__name__
            values = [(name, getattr(top, name)) for name in reversed(key_fields(type(top)))]
            todo += [v for name, v in values if name not in LATER or v != LATER[name]]
        else:
            yield repr(top)


def canonical_program(program: ResolvedProgram) -> ResolvedProgram:
    """`program` with canonical names: sizes `n0…`, tensors `t0…`, variables `i0…`, `l0…`."""
    names = _numbered("n", (*program.sizes, *inner_sizes(program.body)))
    names |= _numbered("t", tuple(t.name for t in program.tensors))
    renaming = Renaming(names)
    return replace(
        program,
        name="",
        sizes=tuple(map(renaming.name, program.sizes)),
        free_sizes=tuple(map(renaming.name, program.free_sizes)),
        size_parameters=tuple(
            replace(p, name=renaming.name(p.name)) for p in program.size_parameters
        ),
        tensors=tuple(_tensor(t, renaming) for t in program.tensors),
        body=_items(program.body, renaming),
    )


def _numbered(prefix: str, names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{prefix}{k}" for k, name in enumerate(dict.fromkeys(names))}


def _items(
    items: tuple[ResolvedItem, ...], outer: Renaming, depth: int = 0
) -> tuple[ResolvedItem, ...]:
    """Index variables are numbered in each statement, loop variables by nesting."""
    renamed: list[ResolvedItem] = []
    for item in items:
        match item:
            case ResolvedStatement():
                variables = _numbered("i", tuple(v.name for v in item.variables))
                variables |= _numbered("g", tuple(g.name for g in item.given))
                renamed += Renaming(variables, outer).items((item,))
            case Unify() | SizeArgument():
                renamed += outer.items((item,))
            case ResolvedFor(variable, _, _, body):
                inner = Renaming({variable: f"l{depth}"}, outer)
                (loop,) = inner.items((replace(item, body=()),))
                assert isinstance(loop, ResolvedFor)
                renamed.append(replace(loop, body=_items(body, inner, depth + 1)))
            case ResolvedIf(condition, then, orelse):
                condition = condition_substitute(condition, outer.values)
                arms = _items(then, outer, depth), _items(orelse, outer, depth)
                renamed.append(replace(item, condition=condition, then=arms[0], orelse=arms[1]))
            case _:
                assert_never(item)
    return tuple(renamed)


def _tensor(t: ResolvedTensor, renaming: Renaming) -> ResolvedTensor:
    shape = None if t.shape is None else tuple(map(renaming.index, t.shape))
    return replace(t, name=renaming.name(t.name), shape=shape)
