# SPDX-License-Identifier: Apache-2.0
"""Program -> text for people: statements with their domains, types, and remaining checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Program,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    Unary,
    children,
    statements,
)
from tcsym.index.expr import Index
from tcsym.index.text import condition_text
from tcsym.trees import fold
from tcsym.types import DType

# How tightly operators bind: a looser one inside a tighter one gets parentheses.
CHOICE, OR, AND, COMPARISON, BIT_OR, BIT_XOR, BIT_AND, SHIFT = range(8)
SUM, PRODUCT, PREFIX, ATOM = range(8, 12)
INFIX: dict[str, tuple[str, int]] = {
    "or": ("||", OR),
    "and": ("&&", AND),
    "lt": ("<", COMPARISON),
    "le": ("<=", COMPARISON),
    "gt": (">", COMPARISON),
    "ge": (">=", COMPARISON),
    "eq": ("==", COMPARISON),
    "ne": ("!=", COMPARISON),
    "bitor": ("|", BIT_OR),
    "bitxor": ("^", BIT_XOR),
    "bitand": ("&", BIT_AND),
    "shl": ("<<", SHIFT),
    "shr": (">>", SHIFT),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "mod": ("%", PRODUCT),
}
Text = tuple[str, int]  # and how tightly its outermost operator binds


def program_text(program: Program) -> str:
    """The whole program: sizes, tensors, statements, checks."""
    lines = [f"program {program.name}({', '.join(program.sizes)})"]
    lines += [f"  {_tensor_text(t)}" for t in program.tensors]
    for item in program.body:
        lines += _item_lines(item, "  ")
    for c in program.checks:
        lines.append(f"  check {c.kind}: {condition_text(c.condition)}  # {c.message}")
    return "\n".join(lines)


def ranges_text(program: Program) -> str:
    """Only the inferred ranges and shapes."""
    lines = [_tensor_text(t) for t in program.tensors]
    for s in statements(program.body):
        lines.append(f"{s.name} ({s.target}): {_domain_text(s.domain)}")
    return "\n".join(lines)


def _tensor_text(t: Tensor) -> str:
    return f"{t.role} {t.dtype}({', '.join(map(str, t.shape))}) {t.name}"


def _domain_text(domain: tuple[Range, ...]) -> str:
    return ", ".join(map(_range_text, domain))


def _range_text(r: Range) -> str:
    text = f"{r.variable} in {r.lower}:{r.upper}{' reduced' if r.reduced else ''}"
    if r.at is None:
        return text
    condition, at = position_parts(r.at)
    text = f"{text} at {at if isinstance(at, Index) else expr_text(at)}"
    return text if condition is None else f"{text} if {expr_text(condition)}"


def _item_lines(item: Item, indent: str) -> Iterator[str]:
    match item:
        case Statement():
            yield f"{indent}{item.name}: {assignment_text(item)}"
            if item.domain:
                yield f"{indent}    where {_domain_text(item.domain)}"
            for g in item.given:
                yield f"{indent}    given {g.name} = {expr_text(g.value)}"
            for e in item.exists:
                yield f"{indent}    exists {expr_text(e)}"
        case For():
            yield f"{indent}for {item.variable} in {item.lower}:{item.upper}"
            for x in item.body:
                yield from _item_lines(x, indent + "  ")
        case If():
            yield f"{indent}if {condition_text(item.condition)}"
            for x in item.then:
                yield from _item_lines(x, indent + "  ")
            if item.orelse:
                yield f"{indent}else"
                for x in item.orelse:
                    yield from _item_lines(x, indent + "  ")
        case _:
            assert_never(item)


def assignment_text(s: Statement) -> str:
    """A statement without its domain."""
    left = f"{s.target}({', '.join(map(str, s.subscripts))})"
    return f"{left} {s.op + '!' * s.initialise} {expr_text(s.value)}"


def expr_text(e: Expr) -> str:
    """An expression in the language's notation, with every conversion and all parentheses."""
    return _text(e)[0]


def _text(e: Expr) -> Text:
    return fold(e, children, _of_parts)


def _of_parts(e: Expr, parts: list[Text]) -> Text:
    inner = [text for text, _ in parts]
    match e:
        case Const(value, dtype):
            return (("true" if value else "false") if dtype is DType.BOOL else f"{value}"), ATOM
        case IndexValue(i, _):
            return str(i), ATOM
        case Read(name, subscripts, _, checked):
            others = iter(inner)
            texts = (str(s) if isinstance(s, Index) else next(others) for s in subscripts)
            return f"{name}({', '.join(texts)}){'!' if any(checked) else ''}", ATOM
        case Cast(_, dtype):
            return f"{dtype}({inner[0]})", ATOM
        case Unary(op):
            return f"{'-' if op == 'neg' else '!'}{inside(parts[0], PREFIX)}", PREFIX
        case Binary("min" | "max" as op):
            return f"{op}({', '.join(inner)})", ATOM
        case Binary(op) | Compare(op):
            symbol, level = INFIX[op]
            first = level + 1 if level == COMPARISON else level
            return f"({inside(parts[0], first)} {symbol} {inside(parts[1], level + 1)})", ATOM
        case Select():
            arms = f"{inside(parts[1], OR)} : {inner[2]}"
            return f"({inside(parts[0], OR)} ? {arms})", ATOM
        case Call(function):
            return f"{function}({', '.join(inner)})", ATOM
        case _:
            assert_never(e)


def inside(text: Text, level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"
