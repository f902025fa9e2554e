# SPDX-License-Identifier: Apache-2.0
"""Text -> syntax tree: structure, spans, syntax errors with their place and words, limits."""

import pickle

import pytest

from tcsym.errors import Span, TCSyntaxError
from tcsym.frontend import ast
from tcsym.frontend.parser import parse

HEAD = "def f(float(N) A) -> (C) { "  # 27 characters: statements start in column 28


def value(text: str) -> ast.Expr:
    (statement,) = parse(f"{HEAD}C = {text} }}").defs[0].body
    assert isinstance(statement, ast.Assign)
    return statement.value


def error(text: str) -> TCSyntaxError:
    with pytest.raises(TCSyntaxError) as e:
        parse(text, "k.tc")
    assert e.value.kind == "syntax"
    return e.value


a, b, c, d = (ast.Name(x) for x in "abcd")


@pytest.mark.parametrize(
    "text, tree",
    [
        ("-a*b", ast.Infix("*", ast.Prefix("-", a), b)),
        ("a - b - c", ast.Infix("-", ast.Infix("-", a, b), c)),
        ("a + b % c", ast.Infix("+", a, ast.Infix("%", b, c))),
        ("a < b == c", ast.Infix("==", ast.Infix("<", a, b), c)),
        ("a || b && c", ast.Infix("||", a, ast.Infix("&&", b, c))),
        ("!a < b", ast.Infix("<", ast.Prefix("!", a), b)),
        ("a ? b : c ? d : a", ast.Ternary(a, b, ast.Ternary(c, d, a))),
        ("a ? b ? c : d : a", ast.Ternary(a, ast.Ternary(b, c, d), a)),
        ("(a)", ast.Paren(a)),
        ("min(a, b)", ast.Extremum("min", a, b)),
        ("minimum(a, b)", ast.Apply("minimum", (a, b))),
        ("infinity", ast.Name("infinity")),
        ("INFINITY", ast.Constant("INFINITY")),
        (".5", ast.Number(".5")),
        ("3.", ast.Number("3.")),
        ("1E-2", ast.Number("1E-2")),
    ],
)
def test_expressions(text: str, tree: ast.Expr) -> None:
    assert value(text) == tree


def test_longest_match_binds_the_bang_to_the_operator() -> None:
    (statement,) = parse(HEAD + "O max=!A(i) }").defs[0].body
    assert isinstance(statement, ast.Assign)
    assert (statement.op, statement.subscripts) == ("max=!", None)


def test_statements() -> None:
    text = "for t in 1:N { if t > 1 { x, y = g(A) } else if t == 2 { } else { C() += 2 } }"
    (loop,) = parse(HEAD + text + " }").defs[0].body
    assert isinstance(loop, ast.For)
    (choice,) = loop.body
    assert isinstance(choice, ast.If)
    names = ast.Identifier("x"), ast.Identifier("y")
    assert choice.then == (ast.CallStatement(names, ast.Identifier("g"), (ast.Name("A"),)),)
    (other,) = choice.orelse
    assert isinstance(other, ast.If)
    assert other.orelse == (ast.Assign("C", (), "+=", ast.Number("2")),)


def test_clauses_and_equivalent() -> None:
    text = "C(i) = x <=> gemm(A, i) where i in 0:N, x = A(i), exists A(i)"
    (s,) = parse(HEAD + text + " }").defs[0].body
    assert isinstance(s, ast.Assign)
    assert s.equivalent == ast.Equivalent("gemm", (ast.Name("A"), ast.Name("i")))
    assert [type(x) for x in s.clauses] == [ast.RangeClause, ast.Let, ast.Exists]


def test_spans_start_at_the_first_token_and_cover_the_construct() -> None:
    e = value("(a + b(c)) * min(d,\n a)")
    assert e.span == Span(1, 32, 16)  # `min(` goes on in another line: its name alone counts
    assert isinstance(e, ast.Infix)
    assert e.left.span == Span(1, 32, 10)
    inner = ast.unparenthesised(e.left)
    assert isinstance(inner, ast.Infix)
    assert (inner.span, inner.right.span) == (Span(1, 33, 8), Span(1, 37, 4))


def test_columns_count_code_points_and_tabs_once() -> None:
    module = parse("# naïve ✓\r\ndef f() -> (C) {\t# ü\r\n\tC = x }\r\n")
    (s,) = module.defs[0].body
    assert s.span == Span(3, 2, 1)


@pytest.mark.parametrize(
    "text, line, column, words",
    [
        ("", 1, 1, "unexpected end of input, expected `def`"),
        ("def f{} {}", 1, 6, "unexpected `{`, expected `(`"),
        ("def f() (C) {}", 1, 9, "expected `->`"),
        ("def f() -> C {}", 1, 12, "unexpected `C`, expected `(`"),
        ("def f() -> () {}", 1, 13, "expected a type or an identifier"),
        ("def f(float(N) for) -> (C) {}", 1, 16, "reserved word `for`, expected an identifier"),
        ("def f(A) -> (C) {}", 1, 7, "unexpected `A`, expected `)`, `inout`, `size` or a type"),
        ("def f(float(NAN) A) -> (C) {}", 1, 13, "reserved word `NAN`"),
        (HEAD + "C = 1\n", 2, 1, "unexpected end of input, expected "),
        (HEAD + "C = 1", 1, 33, "unexpected end of input, expected "),
        (HEAD + "C = a $ 2 }", 1, 34, "unexpected character `$`"),
        (HEAD + "C = a\f }", 1, 33, "unexpected character U+000C"),
        (HEAD + "C = a\r }", 1, 33, "unexpected character U+000D"),
        (HEAD + "C = é }", 1, 32, "unexpected character `é`"),
        (HEAD + "C = a + }", 1, 36, "unexpected `}`, expected an expression"),
        (HEAD + "C = a ? 1 }", 1, 38, "unexpected `}`, expected `:`"),
        (HEAD + "C = min(a) }", 1, 37, "unexpected `)`, expected `,`"),
        (HEAD + "C = (a }", 1, 35, "unexpected `}`, expected `)`"),
        (HEAD + "C(i,) = a }", 1, 32, "unexpected `)`, expected an expression"),
        (HEAD + "C(true) = a }", 1, 30, "reserved word `true`, expected an index variable"),
        (HEAD + "C = 0..2 }", 1, 34, "unexpected `.2`"),
        (HEAD + "C = T.1 }", 1, 33, "unexpected `.1`"),
        (HEAD + "C min = 1 }", 1, 30, "reserved word `min`"),
        (HEAD + "for i = 0:N { } }", 1, 34, "unexpected `=`, expected `in`"),
        (HEAD + "for i in 3 C = 1 }", 1, 39, "expected `:` or `{`"),
        (HEAD + "else { } }", 1, 28, "reserved word `else`"),
        (HEAD + "C = 1 where }", 1, 40, "expected `exists` or an identifier"),
        (HEAD + "C = 1 }\nO = 1", 2, 1, "unexpected `O`, expected `def` or end of input"),
    ],
)
def test_syntax_errors(text: str, line: int, column: int, words: str) -> None:
    e = error(text)
    assert (e.line, e.column) == (line, column)
    assert words in e.message
    assert str(e).startswith(f"k.tc:{line}:{column}: ")


def test_syntax_error_shows_the_line_and_pickles() -> None:
    e = error(HEAD + "C = a + }")
    assert str(e).splitlines()[1:] == [f"    {HEAD}C = a + }}", " " * 39 + "^"]
    assert str(pickle.loads(pickle.dumps(e))) == str(e)


# ---- limits: the body's brace is the first of 200


def nested(n: int, left: str, right: str, middle: str = "a") -> str:
    return f"{HEAD}C = {left * n}{middle}{right * n} }}"


@pytest.mark.parametrize(
    "left, right, column",
    [
        ("(", ")", 32 + 199),
        ("exp(", ")", 32 + 4 * 200 - 1),
        ("-", "", 32 + 199),
        ("-(", ")", 32 + 199),
        ("(0 + ", ")", 32 + 5 * 199),
    ],
)
def test_nesting(left: str, right: str, column: int) -> None:
    n = 199 // (left.count("(") + left.count("-"))
    parse(nested(n, left, right))
    e = error(nested(200, left, right))
    assert (e.line, e.column) == (1, column)
    assert "nesting deeper than 200" in e.message


def test_nesting_of_choices() -> None:
    parse(nested(200, "b ? 1 : ", ""))
    assert "nesting" in error(nested(201, "b ? 1 : ", "")).message
    chain = "if t > 1 { C = 1 } else "
    parse(f"{HEAD}for t in 3 {{ {chain * 198}{{ C = 2 }} }} }}")
    assert "nesting" in error(f"{HEAD}for t in 3 {{ {chain * 200}{{ C = 2 }} }} }}").message


def test_siblings_are_not_nested() -> None:
    parse(HEAD + "C = " + " + ".join(["-(a ? b : c)"] * 300) + " }")
    parse(HEAD + "C = a ? b : c " * 300 + "}")
    parse(HEAD + "for t in 3 { if t > 1 { C = 1 } else if t > 2 { C = 1 } }" * 300 + " }")


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "<", "&&", "||"])
def test_long_expressions(operator: str) -> None:
    """Their trees are as deep as the text is long: there is a limit that code is made of."""
    terms = operator.join(["a"] * 1001)
    parse(f"{HEAD}C = {terms} D = {terms} }}")
    e = error(f"{HEAD}C = {terms}{operator}a }}")
    assert (e.line, e.column) == (1, 32 + len(terms))
    assert "more than 1000 operators" in e.message and "statements before" in e.hint
    parts = ", ".join(["a + b"] * 500)
    parse(f"{HEAD}C = f({parts}) + a }}")
    assert "operators" in error(f"{HEAD}C = f({parts}) + f({parts}) + a }}").message
    assert "operators" in error(f"{HEAD}C = A(i{'+1-1' * 501}) where i in 0:3 }}").message
    assert "operators" in error(f"{HEAD}C = a where i in 0:{'1+' * 1001}1 }}").message


def test_rank() -> None:
    names = ",".join(["N"] * 33)
    assert error(f"def f(float({names}) A) -> (C) {{ C = 1 }}").column == 13 + 64
    assert error(f"{HEAD}C({names}) = 1 }}").column == 30 + 64
    assert "more than 32 dimensions" in error(f"{HEAD}C({names}) = 1 }}").message
    parse(f"{HEAD}C = g({names}) }}")  # arguments have no such limit


def test_long_texts_and_numbers() -> None:
    parse(f"{HEAD}C = {'1' * 400} }}")
    assert error(f"{HEAD}C = {'1' * 401} }}").column == 32
    assert error(f"{HEAD}C = 1. }}" + " " * (1 << 20) + "x").column == 27 + 8 + (1 << 20) + 1
    assert "longer than 1048576" in error(HEAD + "C = 1 }" + " " * (1 << 20)).message


def test_an_earlier_syntax_error_comes_before_a_limit() -> None:
    assert error(nested(300, "(", ")").replace("C = ", "C = + ")).column == 32


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("def f(float(N) A) -> C { C(i) = A(i) }", "`-> (C)`"),
        ("def f(float[N] A) -> (C) { C(i) = A(i) }", "stand in parentheses"),
        ("def f(int(N) A) -> (C) { C(i) = A(i) }", "`int32`"),
        ("def f(float(N) A) -> (C) { C(i) = A(i); }", "no separator"),
        ("def f(float(N) A) -> (C) { C(i) = A(i) ** 2 }", "`pow(a, b)`"),
        ("def f(float(N) A) -> (C) { C(i) = if A(i) > 0 }", "`condition ? a : b`"),
        ("def f(float(N) A) -> (C) { let x = A(i) C(i) = x }", "where x ="),
        ("def f(float(N) A) -> (C) { C(i) = A(i) } }", ""),
    ],
)
def test_habits_from_elsewhere_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(TCSyntaxError) as caught:
        parse(text)
    assert hint in caught.value.hint and bool(hint) == bool(caught.value.hint)


def test_of_a_long_line_the_part_around_the_place_is_shown() -> None:
    sums = " + ".join(["X(i)"] * 400)
    with pytest.raises(TCSyntaxError) as caught:
        parse(f"def f(float(N) X) -> (Y) {{ Y(i) = {sums} + ] + {sums} }}")
    _, line, carets, *_ = str(caught.value).split("\n")
    assert len(line) < 180 and line.strip().startswith("…") and line.endswith("…")
    assert line[carets.index("^")] == "]"
