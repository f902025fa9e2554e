# SPDX-License-Identifier: Apache-2.0
"""A function of symbolic tensors that calls kernels -> the def that it amounts to.

While the function runs, a kernel that is called with a `Symbol` notes a call statement and answers
with symbols for its results. What comes of it is text in the language, with the defs of all kernels
in front: a program like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tcsym.errors import CallError, OptionError
from tcsym.runtime.arguments import MISSING, match_arguments, missing
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import CallPlan, GivenSize, Parameter
from tcsym.sizes.values import size_value
from tcsym.types import DType

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


class Symbol(Struct, eq=False):
    """A tensor or size while a function is traced. What a parameter is, its first use says; it is
    `inout` if some use updates it."""

    name: str
    trace: Trace
    dtype: DType | None = None
    extents: tuple[str, ...] | None = None
    inout: bool = False
    is_size: bool = False


class Trace(Struct, eq=False):
    """What a function did so far."""

    texts: dict[str, str] = field(default_factory=dict)  # def -> the text it stands in
    statements: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"


_TRACED: ContextVar[Trace | None] = ContextVar("tcsym_traced", default=None)


def trace(function: Callable[..., Any], *, name: str = "traced", **settings: Any) -> Kernel:
    """A kernel of what a function does: it takes symbolic tensors, calls kernels, returns results.

    Example: `both = tcsym.trace(lambda x, y, c: cat(cat(x, y), c))`. Parameters keep their names;
    results are `o`, or `o1`, `o2`, ... of a tuple, or the keys of a mapping; of a function that
    returns None there are none. What a kernel updates the function updates.
    name: of the def; its text is the kernel's `source`.
    settings: as for `define`.
    Errors: OptionError where the function does anything but call kernels; those of `define`.
    """
    from tcsym.kernel.definition import define

    made = Trace()
    parameters = [Symbol(n, made) for n in _names(function)]
    token = _TRACED.set(made)
    try:
        results = function(*parameters)
    finally:
        _TRACED.reset(token)
    text = _text(made, name, parameters, _outputs(results, made))
    return define(text, filename="<trace>", **settings)[name]


def _names(function: Callable[..., Any]) -> list[str]:
    plain = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = inspect.signature(function).parameters.values()
    for p in found:
        if p.kind not in plain:
            raise OptionError(f"`{p.name}` of the function is no plain parameter")
    return [p.name for p in found]


def _outputs(results: Any, made: Trace) -> dict[str, Symbol]:
    if results is None and any(" = " not in x for x in made.statements):
        return {}
    if isinstance(results, Mapping):
        named = dict(results)
    elif isinstance(results, tuple | list):
        named = {f"o{k}": x for k, x in enumerate(results, 1)}
    else:
        named = {"o": results}
    for name, x in named.items():
        if not isinstance(x, Symbol) or x.trace is not made:
            raise OptionError(f"result `{name}` of the function is no tensor of this trace")
    return named


def _text(made: Trace, name: str, parameters: list[Symbol], outputs: Mapping[str, Symbol]) -> str:
    heads = []
    for p in parameters:
        if p.is_size:
            heads.append(f"size {p.name}")
            continue
        if p.dtype is None or p.extents is None:
            raise OptionError(f"parameter `{p.name}` of the function goes into no kernel")
        extents = f"({', '.join(p.extents)})" if p.extents else ""
        heads.append(f"{'inout ' * p.inout}{p.dtype}{extents} {p.name}")
    if name in made.texts:
        raise OptionError(f"`{name}` is one of the kernels", hint="give another `name`")
    made_here = {s.rpartition(" = ")[0] for s in made.statements}
    renamed = {x.name: n for n, x in outputs.items()}
    given = [x.name for x in outputs.values() if x in parameters]
    if given or len(renamed) < len(outputs):
        raise OptionError("a result of the function is a parameter, or another result")
    taken = ({p.name for p in parameters} | made_here) & {*outputs}
    if taken:
        raise OptionError(f"`{sorted(taken)[0]}` is a result and another tensor")
    body = "".join(f"    {_renamed(s, renamed)}\n" for s in made.statements)
    defs = "\n".join(dict.fromkeys(text.strip("\n") for text in made.texts.values()))
    return f"{defs}\ndef {name}({', '.join(heads)}) -> ({', '.join(outputs)}) {{\n{body}}}\n"


def _renamed(statement: str, names: Mapping[str, str]) -> str:
    left, assigned, right = statement.rpartition(" = ")
    call, _, arguments = right.rstrip(")").partition("(")
    targets = ", ".join(names.get(x, x) for x in left.split(", "))
    given = ", ".join(names.get(x, x) for x in arguments.split(", ") if x)
    return f"{targets}{assigned}{call}({given})"


# ---- calls while a function is traced


def traced_call(plan: CallPlan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Symbols for the results; NotImplemented if nothing is traced, or none of the arguments is."""
    made = _TRACED.get()
    if made is None:
        return NotImplemented
    given = match_arguments(plan, args, kwargs)
    if not any(isinstance(x, Symbol) for x in given):
        return NotImplemented
    program = plan.program
    known = made.texts.setdefault(program.name, program.source)
    if known != program.source:
        hint = "define one of them under another name"
        raise CallError(f"two kernels of this trace are called `{program.name}`", hint=hint)
    names = [_argument(plan, p, x, made) for p, x in zip(plan.parameters, given)]
    results = [Symbol(made.fresh(), made) for _ in plan.outputs]
    for symbol, output in zip(results, plan.outputs):
        symbol.dtype = output.dtype
    targets = ", ".join(x.name for x in results) + " = " * bool(results)
    made.statements.append(f"{targets}{program.name}({', '.join(names)})")
    return packed(plan.output_names, tuple(results))


def _argument(plan: CallPlan, p: Parameter | GivenSize, x: Any, made: Trace) -> str:
    if x is MISSING:
        raise missing(plan, p)
    if isinstance(p, GivenSize):
        return _size_argument(plan, p, x, made)
    if not isinstance(x, Symbol) or x.trace is not made:
        message = f"`{p.name}` is no tensor of this trace"
        raise plan.error("type", message, p.span, "make it a parameter of the traced function")
    if x.is_size:
        raise plan.error("type", f"`{p.name}` is a size of this trace, no tensor", p.span)
    if x.dtype is None:
        x.dtype = p.dtype
        x.extents = tuple(
            str(d) if isinstance(d, int) else f"{x.name}_{k}" for k, d in enumerate(p.dimensions)
        )
    x.inout = x.inout or p.inout
    return x.name


def _size_argument(plan: CallPlan, p: GivenSize, x: Any, made: Trace) -> str:
    """A number, or a parameter of the traced function that is a size."""
    number = size_value(x)
    if number is not None and number >= 0:
        return str(number)
    if not isinstance(x, Symbol) or x.trace is not made or x.dtype is not None:
        message = f"`{p.name}` is no integer >= 0, nor a parameter of this trace that is a size"
        raise plan.error("type", message, p.span)
    x.is_size = True
    return x.name
