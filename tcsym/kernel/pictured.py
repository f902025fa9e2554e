# SPDX-License-Identifier: Apache-2.0
"""Elements, named as a text names them -> a picture of what a kernel reads for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from tcsym.display.picture import Drawn, Picture
from tcsym.errors import (
    ERROR_KINDS,
    CallError,
    MissingError,
    OptionError,
    Span,
    TCError,
    TCNameError,
)
from tcsym.frontend.accesses import Accesses, deciding, watched
from tcsym.frontend.program import Program, Statement, statements
from tcsym.index.values import evaluate
from tcsym.runtime.arrays import numpy_array
from tcsym.runtime.device import device_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tcsym.kernel.serving import Serving
    from tcsym.runtime.arguments import Bound

_Place = tuple[Span, str, slice | int]  # of an axis: where it is said, how, what is meant

_ROLES = {"input": "argument", "inout": "updated argument", "output": "result"}
_ELEMENT = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(\((?P<inside>[^()]*)\)\s*)?")
_PLACE = re.compile(r"\s*(?:(?P<at>-?\d+)|(?P<lower>-?\d+)?\s*:\s*(?P<upper>-?\d+)?)\s*")
_FORM = "elements are written as `Y(0, 2, 3)`, and ranges of them as `Y(0, 1:3, :)`"


def picture(
    serving: Serving,
    element: str,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    statement: str | None,
    through: bool,
) -> Picture:
    """What `Kernel.picture` returns."""
    program = serving.program
    if not isinstance(element, str):
        what = f"an element is a text, not {type(element).__name__}"
        raise CallError(what, hint=f"{_FORM}; arguments come behind it")
    if through and statement is not None:
        message = "`through` follows all statements, and `statement` chooses one"
        raise OptionError(message, hint="leave out one of them")
    target, places = _parsed(element, program)
    chosen = _chosen(program, target, statement)
    plan = replace(serving.plan, device=device_of("cpu"))
    bound = serving.bind_shapes(args, named, plan)
    names = [p.name for p in plan.inputs]
    missing = [n for n, v in zip(names, bound.views) if v.owner is None]
    _require_data(element, program, missing, list(statements(program.body)) if through else chosen)
    sizes = dict(zip(plan.sizes, bound.sizes))
    shape = tuple(evaluate(extent, sizes) for extent in program.tensor(target).shape)
    mask = _mask(element, target, shape, places)
    try:
        run = watched(program, _arrays(names, bound), sizes, None if through else (target, mask))
    except TCError as error:
        if missing and error.line:  # not that it is too long
            zeros = f"what is given as a shape is zeros here: {', '.join(missing)}"
            error.hint = f"{error.hint}; {zeros}" if error.hint else zeros
        raise
    only = frozenset(s.name for s in chosen)
    found = run.made_of(target, mask) if through else run.read_for(target, mask, only)
    if not found.statements:
        raise CallError(
            f"at these sizes nothing writes `{element.strip()}`",
            hint="a condition on sizes or steps leaves it out: name another element",
        )
    return _drawn(element, program, found, through)


def _arrays(names: list[str], bound: Bound) -> dict[str, NDArray[Any]]:
    """Zeros where only a shape is given."""
    found = {}
    for name, view in zip(names, bound.views):
        if view.owner is None:
            assert view.dtype is not None
            found[name] = np.zeros(view.shape, view.dtype.numpy)
        else:
            found[name] = numpy_array(view)
    return found


# ---- which elements


def _parsed(element: str, program: Program) -> tuple[str, list[_Place]]:
    """The tensor, and what is said of each axis."""

    def error(kind: str, message: str, at: int, length: int, hint: str = "") -> TCError:
        span = Span(1, at + 1, max(1, length))
        return ERROR_KINDS[kind](message, span=span, source=element, filename="element", hint=hint)

    match = _ELEMENT.fullmatch(element)
    if match is None:
        raise error("syntax", f"`{element}` names no element", 0, len(element), _FORM)
    name = match["name"]
    known = [t for t in program.tensors if t.role != "input"]
    if name not in [t.name for t in known]:
        listed = ", ".join(f"`{t.name}`" for t in known)
        what = (
            f"`{name}` is an argument, which nothing writes"
            if name in [t.name for t in program.tensors]
            else f"`{program.name}` has no tensor `{name}`"
        )
        hint = f"it writes {listed}" if listed else "it writes nothing"
        raise error("name", what, match.start("name"), len(name), hint)
    places, at = [], match.start("inside")
    inside = match["inside"] or ""
    for text in inside.split(",") if inside.strip() else []:
        place = _PLACE.fullmatch(text)
        if place is None:
            raise error("syntax", f"`{text.strip()}` is no subscript", at, len(text), _FORM)
        number = place["at"]
        lower, upper = (None if x is None else int(x) for x in (place["lower"], place["upper"]))
        span = Span(1, at + 1 + len(text) - len(text.lstrip()), max(1, len(text.strip())))
        places.append((span, text.strip(), slice(lower, upper) if number is None else int(number)))
        at += len(text) + 1
    rank = len(program.tensor(name).shape)
    if len(places) != rank:
        message = f"`{name}` has rank {rank}, and the number of subscripts given is {len(places)}"
        raise error("rank", message, 0, len(element), _FORM)
    return name, places


def _mask(
    element: str, name: str, shape: tuple[int, ...], places: list[_Place]
) -> NDArray[np.bool_]:
    """The elements that are meant."""
    for axis, ((span, text, place), extent) in enumerate(zip(places, shape)):
        if isinstance(place, int):
            inside = 0 <= place < extent
        else:
            lower = 0 if place.start is None else place.start
            inside = 0 <= lower < (extent if place.stop is None else place.stop) <= extent
        if not inside:
            message = f"`{text}` is no element of `{name}`, whose size is {extent} on axis {axis}"
            hint = (
                f"say {'0' if extent == 1 else f'0 to {extent - 1}'}" if extent else "it is empty"
            )
            raise ERROR_KINDS["bounds"](
                message, span=span, source=element, filename="element", hint=hint
            )
    mask = np.zeros(shape, dtype=np.bool_)
    mask[tuple(place for _, _, place in places)] = True
    return mask


def _chosen(program: Program, target: str, statement: str | None) -> list[Statement]:
    writing = [s for s in statements(program.body) if s.target == target]
    if statement is None:
        return writing
    chosen = [s for s in writing if s.name == statement]
    if not chosen:
        others = {s.name: s for s in statements(program.body)}
        what = (
            f"statement `{statement}` writes `{others[statement].target}`, not `{target}`"
            if statement in others
            else f"`{program.name}` has no statement `{statement}`"
        )
        listed = ", ".join(f"`{s.name}` (line {s.span.line})" for s in writing)
        hint = f'`{target}` is written by {listed}; `explain("program")` lists all'
        raise TCNameError(what, hint=hint)
    return chosen


def _require_data(
    element: str, program: Program, missing: list[str], chosen: list[Statement]
) -> None:
    needed = deciding(program, chosen)
    for name in missing:
        if name in needed:
            message = (
                f"{program.name}: what is read for `{element.strip()}` depends on the values of "
                f"`{name}`, of which only the shape is given"
            )
            raise MissingError(
                message,
                span=program.tensor(name).span,
                source=program.source,
                filename=program.filename,
                hint=f"give an array for `{name}`; shapes do for what is not looked at",
            )


# ---- for the eye


def _drawn(element: str, program: Program, found: Accesses, through: bool) -> Picture:
    shown = []
    for t in program.tensors:
        is_target = t.name == found.target
        counts = found.reads.get(t.name)
        if not is_target and counts is None and t.name not in found.outside:
            continue
        shape = found.shapes[t.name]
        drawn = Drawn(
            name=t.name,
            role=_ROLES.get(t.role, "temporary"),
            extents=tuple(str(e) for e in t.shape),
            reads=np.zeros(shape, np.int64) if counts is None else counts,
            written=found.written if is_target else np.zeros(shape, np.bool_),
            outside=dict(found.outside.get(t.name, {})),
        )
        shown.append(drawn)
    shown.sort(key=lambda d: d.name == found.target)
    text = re.sub(r"\s*([(,:])\s*", r"\1", element.strip()).replace(",", ", ").replace(" )", ")")
    how = "is made of, through temporaries" if through else "reads"
    return Picture(
        f"What {text} of {program.name} {how}", _texts(program, found.statements), tuple(shown)
    )


def _texts(program: Program, chosen: tuple[Statement, ...]) -> tuple[str, ...]:
    """Statements as they stand in the text."""
    from tcsym.frontend.program_text import assignment_text

    starts = _starts(program.source)
    text = re.sub("#.*", lambda m: " " * len(m[0]), program.source)
    found = []
    for s in chosen:
        if s.span not in starts:  # made by a pass, without a text
            found.append(assignment_text(s))
            continue
        start = starts[s.span]
        behind = [text.find("}", start), *starts.values()]
        found.append(" ".join(text[start : min(e for e in behind if e > start)].split()))
    return tuple(dict.fromkeys(found))


def _starts(source: str) -> dict[Span, int]:
    """Where each statement, loop and condition of a text begins."""
    from tcsym.frontend import ast
    from tcsym.frontend.parser import parse

    try:
        items: list[ast.Item] = [x for d in parse(source).defs for x in d.body]
    except TCError:
        return {}
    lines = [0, *(m.end() for m in re.finditer("\n", source))]
    found = {}
    while items:
        match item := items.pop():
            case ast.For(_, _, _, body):
                items += body
            case ast.If(_, then, orelse):
                items += [*then, *(orelse or ())]
        found[item.span] = lines[item.span.line - 1] + item.span.column - 1
    return found
