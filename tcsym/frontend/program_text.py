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
    dtype_of,
    statements,
)
from tcsym.index.expr import Index
from tcsym.index.text import condition_text
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
    """An expression in the language's notation, with every conversion and all parentheses."""
    return Writer().text(e)[0]


class Writer:
    """Expressions for people; who writes them otherwise overrides the parts below."""

    def text(self, e: Expr) -> Text:
        match e:
            case Const():
                return self.constant(e)
            case IndexValue(i, _):
                return self.index(i)
            case Read():
                return self.read(e), ATOM
            case Cast(x, dtype):
                return self.cast(self.text(x)[0], dtype)
            case Unary(op, x, _):
                return f"{'-' if op == 'neg' else '!'}{inside(self.text(x), PREFIX)}", PREFIX
            case Binary("min" | "max" as op, a, b, dtype):
                left, right = self.operands(a, b, dtype)
                return f"{op}({left[0]}, {right[0]})", ATOM
            case Binary(op, a, b) | Compare(op, a, b):
                symbol, level = INFIX[op]
                left, right = self.operands(a, b, dtype_of(e if isinstance(e, Binary) else a))
                first = level + 1 if level == COMPARISON else level
                text = f"{inside(left, first)} {symbol} {inside(right, level + 1)}"
                return self.grouped(text, level)
            case Select(c, a, b, dtype):
                left, right = self.operands(a, b, dtype)
                test = inside(self.text(c), OR)
                return self.grouped(f"{test} ? {inside(left, OR)} : {right[0]}", CHOICE)
            case Call(function, args, dtype):
                return f"{function}({', '.join(self.arguments(args, dtype))})", ATOM
            case _:
                assert_never(e)

    def constant(self, e: Const) -> Text:
        text = ("true" if e.value else "false") if e.dtype is DType.BOOL else f"{e.value}"
        return text, ATOM

    def index(self, i: Index) -> Text:
        return str(i), ATOM

    def subscript(self, e: Expr) -> str:
        return self.text(e)[0]

    def read(self, e: Read) -> str:
        parts = (str(s) if isinstance(s, Index) else self.subscript(s) for s in e.subscripts)
        return f"{e.tensor}({', '.join(parts)}){'!' if any(e.checked) else ''}"

    def cast(self, text: str, dtype: DType) -> Text:
        return f"{dtype}({text})", ATOM

    def operands(self, a: Expr, b: Expr, dtype: DType) -> tuple[Text, Text]:
        """dtype: of both, once they are converted."""
        return self.text(a), self.text(b)

    def arguments(self, args: tuple[Expr, ...], dtype: DType) -> list[str]:
        return [self.text(a)[0] for a in args]

    def grouped(self, text: str, level: int) -> Text:
        return f"({text})", ATOM


def inside(text: Text, level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"
