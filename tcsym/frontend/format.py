# SPDX-License-Identifier: Apache-2.0
"""Syntax tree -> canonical text: one spelling of spaces and lines; parses back to an equal tree.

Comments are not in the tree and are lost. Parentheses and the spelling of numbers are kept.
"""

from __future__ import annotations

from typing import assert_never

from tcsym.frontend import ast

_INDENT = "  "
_WIDTH = 100


def format_program(program: ast.Module | ast.Def) -> str:
    """Text of a module or of one def, ending in a newline."""
    defs = program.defs if isinstance(program, ast.Module) else (program,)
    return "\n".join(_def_text(d) for d in defs)


def _def_text(d: ast.Def) -> str:
    params = ", ".join(map(_param_text, d.params))
    results = ", ".join(map(_result_text, d.results))
    header = f"def {d.name}({params}) -> ({results}) {{"
    if len(header) > _WIDTH:
        header = f"def {d.name}({params})\n{_INDENT * 2}-> ({results}) {{"
    return "\n".join([header, *_lines(d.body, _INDENT), "}", ""])


def _param_text(p: ast.Parameter) -> str:
    if isinstance(p, ast.SizeParam):
        return f"size {p.name}"
    sizes = ",".join(str(d.size) for d in p.dimensions)
    text = f"{p.dtype}({sizes}) {p.name}" if sizes else f"{p.dtype} {p.name}"
    return f"inout {text}" if p.inout else text


def _result_text(r: ast.Result) -> str:
    if r.dtype is None:
        return r.name
    sizes = ", ".join(map(expression_text, r.dimensions))
    return f"{r.dtype}({sizes}) {r.name}" if sizes else f"{r.dtype} {r.name}"


# ---- statements


def _lines(items: tuple[ast.Item, ...], indent: str) -> list[str]:
    lines: list[str] = []
    for item in items:
        match item:
            case ast.Assign():
                lines.append(indent + assign_text(item))
            case ast.CallStatement(targets, function, args):
                names = ", ".join(t.name for t in targets) + " = " * bool(targets)
                lines.append(f"{indent}{names}{function.name}({_arguments_text(args)})")
            case ast.For(variable, lower, upper, body):
                start = "" if lower is None else expression_text(lower) + ":"
                lines.append(f"{indent}for {variable.name} in {start}{expression_text(upper)} {{")
                lines += [*_lines(body, indent + _INDENT), indent + "}"]
            case ast.If():
                lines += _if_lines(item, indent)
            case _:
                assert_never(item)
    return lines


def _if_lines(item: ast.If, indent: str) -> list[str]:
    """`else if` chains in a loop: they may be long."""
    lines: list[str] = []
    start = indent
    while True:
        lines.append(f"{start}if {expression_text(item.condition)} {{")
        lines += _lines(item.then, indent + _INDENT)
        match item.orelse:
            case (ast.If() as other,):
                item, start = other, f"{indent}}} else "
            case ():
                return [*lines, indent + "}"]
            case orelse:
                return [
                    *lines,
                    indent + "} else {",
                    *_lines(orelse, indent + _INDENT),
                    indent + "}",
                ]


def assign_text(s: ast.Assign) -> str:
    left = s.target if s.subscripts is None else f"{s.target}({_arguments_text(s.subscripts)})"
    text = f"{left} {s.op} {expression_text(s.value)}"
    if s.equivalent is not None:
        text += f" <=> {s.equivalent.name}({_arguments_text(s.equivalent.args)})"
    if s.clauses:
        text += " where " + ", ".join(map(_clause_text, s.clauses))
    return text


def _clause_text(clause: ast.Clause) -> str:
    match clause:
        case ast.RangeClause(variable, lower, upper):
            return f"{variable.name} in {expression_text(lower)}:{expression_text(upper)}"
        case ast.Let(name, value):
            return f"{name.name} = {expression_text(value)}"
        case ast.Exists(value):
            return f"exists {expression_text(value)}"
        case _:
            assert_never(clause)


def _arguments_text(args: tuple[ast.Expr, ...]) -> str:
    return ", ".join(map(expression_text, args))


# ---- expressions


def expression_text(e: ast.Expr) -> str:
    """Written from a stack of what is still to come, so that long chains need no recursion."""
    out: list[str] = []
    todo: list[ast.Expr | str] = [e]
    while todo:
        top = todo.pop()
        if isinstance(top, str):
            out.append(top)
        else:
            todo.extend(reversed(_parts(top)))
    return "".join(out)


def _parts(e: ast.Expr) -> list[ast.Expr | str]:
    match e:
        case ast.Number(text) | ast.Constant(text) | ast.Name(text):
            return [text]
        case ast.Apply(name, args):
            separated = [part for a in args for part in (", ", a)][1:]
            return [f"{name}(", *separated, ")"]
        case ast.Paren(inner):
            return ["(", inner, ")"]
        case ast.CastTo(dtype, operand):
            return [f"{dtype}(", operand, ")"]
        case ast.Extremum(op, a, b):
            return [f"{op}(", a, ", ", b, ")"]
        case ast.Prefix(op, operand):
            return [op, operand]
        case ast.Infix(op, a, b):
            return [a, f" {op} ", b]
        case ast.Ternary(condition, a, b):
            return [condition, " ? ", a, " : ", b]
        case _:
            assert_never(e)
