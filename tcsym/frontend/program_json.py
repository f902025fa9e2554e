# SPDX-License-Identifier: Apache-2.0
"""Typed programs <-> JSON data, exactly: spans and texts come back, too. For the code cache.

The data is a list of nodes, parts before wholes, `[class, field, ...]`; a field that is a node is
written `[its place in the list]`, any other is itself. Tuples are nodes of class "". So neither
direction recurses, however deep an expression is, and shared parts stay shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from tcsym.errors import Span
from tcsym.frontend import program
from tcsym.frontend.program import Program
from tcsym.index import expr as index
from tcsym.types import DType

_CLASSES: tuple[type[Struct], ...] = (
    index.Index,
    index.Product,
    index.FloorDiv,
    index.Mod,
    index.Min,
    index.Max,
    index.Choose,
    index.NonNegative,
    index.IsZero,
    index.Not,
    index.All,
    index.Any_,
    program.Const,
    program.IndexValue,
    program.Read,
    program.Cast,
    program.Unary,
    program.Binary,
    program.Compare,
    program.Select,
    program.Call,
    program.Range,
    program.Given,
    program.Statement,
    program.For,
    program.If,
    program.Tensor,
    program.Check,
    program.Trap,
    program.SizeParameter,
    program.Program,
)
_TUPLE, _DTYPE = "", "DType"


def _tuple(*items: Any) -> tuple[Any, ...]:
    return items


def _parts(cls: type[Struct]) -> Callable[[Any], tuple[Any, ...]]:
    """Function of a node: what its constructor takes."""
    names: tuple[str, ...] = cls.__struct_fields__
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda node: (get(node),)


_PARTS: dict[type, tuple[str, Callable[[Any], Sequence[Any]]]] = {
    **{cls: (cls.__name__, _parts(cls)) for cls in _CLASSES},
    Span: (Span.__name__, tuple),
    tuple: (_TUPLE, tuple),
    DType: (_DTYPE, lambda dtype: (dtype.value,)),
}
_MAKERS: dict[str, Callable[..., Any]] = {
    **{cls.__name__: cls for cls in _CLASSES},
    Span.__name__: Span,
    _TUPLE: _tuple,
    _DTYPE: DType,
}


def programs_to_json(programs: Sequence[Program]) -> list[Any]:
    """Data that `programs_from_json` turns into equal programs."""
    nodes: list[Any] = []
    place: dict[int, list[int]] = {}  # by identity: equal nodes may have different spans
    todo: list[Any] = [root := tuple(programs)]
    while todo:
        node = todo[-1]
        name, parts = _PARTS[type(node)]
        values = parts(node)
        missing = [v for v in values if type(v) in _PARTS and id(v) not in place]
        if missing:
            todo += reversed(missing)
            continue
        todo.pop()
        if id(node) not in place:
            place[id(node)] = [len(nodes)]
            nodes.append([name, *(place.get(id(v), v) if type(v) in _PARTS else v for v in values)])
    assert place[id(root)] == [len(nodes) - 1]
    return nodes


def programs_from_json(data: list[Any]) -> tuple[Program, ...]:
    """The programs. ValueError, TypeError, LookupError: `data` is not what is written here."""
    nodes: list[Any] = []
    for name, *values in data:
        parts = [nodes[v[0]] if type(v) is list else v for v in values]
        nodes.append(_MAKERS[name](*parts))
    programs: tuple[Program, ...] = nodes[-1]
    if type(programs) is not tuple or not all(type(p) is Program for p in programs):
        raise ValueError("not programs")
    return programs
