"""Program -> text for people: statements with their domains, types, and remaining checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

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
    statements,
)
from tcsym.index.expr import Index, condition_text
from tcsym.types import DType

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
    "shl": "<<",
    "shr": ">>",
    "and": "&&",
    "or": "||",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}


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
    return f"{text} at {r.at if isinstance(r.at, Index) else expr_text(r.at)}"


def _item_lines(item: Item, indent: str) -> Iterator[str]:
    match item:
        case Statement():
            left = f"{item.target}({', '.join(map(str, item.subscripts))})"
            op = item.op + ("!" if item.initialise else "")
            yield f"{indent}{item.name}: {left} {op} {expr_text(item.value)}"
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


def expr_text(e: Expr) -> str:
    """An expression in the language's notation, with every conversion written out."""
    match e:
        case Const(value, dtype):
            return ("true" if value else "false") if dtype is DType.BOOL else f"{value}"
        case IndexValue(i, _):
            return str(i)
        case Read(tensor, subscripts):
            parts = (str(s) if isinstance(s, Index) else expr_text(s) for s in subscripts)
            return f"{tensor}({', '.join(parts)}){'!' if any(e.checked) else ''}"
        case Cast(x, dtype):
            return f"{dtype}({expr_text(x)})"
        case Unary(op, x, _):
            return f"{'-' if op == 'neg' else '!'}{expr_text(x)}"
        case Binary("min" | "max" as op, a, b, _):
            return f"{op}({expr_text(a)}, {expr_text(b)})"
        case Binary(op, a, b, _) | Compare(op, a, b):
            return f"({expr_text(a)} {_INFIX[op]} {expr_text(b)})"
        case Select(c, a, b, _):
            return f"({expr_text(c)} ? {expr_text(a)} : {expr_text(b)})"
        case Call(function, args, _):
            return f"{function}({', '.join(map(expr_text, args))})"
        case _:
            assert_never(e)
