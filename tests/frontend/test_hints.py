# SPDX-License-Identifier: Apache-2.0
"""Hints: what they say of habits from elsewhere, and that all they propose compiles."""

from __future__ import annotations

import re

import pytest

import tcsym as tc
from tcsym import TCError, library
from tcsym.frontend.idioms import EXPRESSIONS, OTHERWISE, SAME_TYPES, STATEMENTS, TYPES

SCALARS = "float x, float a, float b, float lo, float hi, float t, bool p, bool q"
TENSORS = "float(N,M) X, float(M,K) W, float(N) A, float(L) B"


def error(text: str) -> TCError:
    with pytest.raises(TCError) as caught:
        tc.define(text)
    return caught.value


def in_statement(value: str) -> TCError:
    return error(f"def f({TENSORS}) -> (Y) {{ Y(i) = {value} }}")


def proposed(hint: str) -> list[str]:
    """The snippets of a hint: its indented lines."""
    return [found.group() for found in re.finditer(r"(^    .*\n?)+", hint, re.MULTILINE)]


def require_snippets_compile(hint: str) -> None:
    for snippet in proposed(hint):
        is_def = snippet.lstrip().startswith("def ")
        if is_def:
            tc.define(snippet)
        else:
            header = "float(N) X" if re.search(r"\bX\(i\)", snippet) else TENSORS
            tc.define(f"def f({header}) -> (Y) {{\n{snippet}\n}}")


# ---- names of functions and types


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_is_an_expression_here(name: str) -> None:
    call, expression = EXPRESSIONS[name]
    tc.define(f"def f({SCALARS}) -> (Y) {{ Y = {expression} }}")
    if name != "where":  # a reserved word
        assert in_statement(f"{name}(X(i,0))").hint == f"`{call}` is written `{expression}`"


@pytest.mark.parametrize("name", STATEMENTS)
def test_what_is_a_statement_here(name: str) -> None:
    hint = in_statement(f"{name}(X(i,0))").hint
    assert f"`{name}` is written as " in hint and len(proposed(hint)) == 1
    require_snippets_compile(hint)


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_otherwise_here(name: str) -> None:
    hint = in_statement(f"{name}(X(i,0))").hint
    assert hint.startswith(OTHERWISE[name][0]) and len(proposed(hint)) == 1
    require_snippets_compile(hint)


@pytest.mark.parametrize("name", SAME_TYPES)
def test_types_of_other_languages(name: str) -> None:
    meant = SAME_TYPES[name]
    tc.define(f"def f({meant}(N) X) -> ({meant}(N) Y) {{ Y(i) = {meant}(X(i)) }}")
    cast = in_statement(f"{name}(X(i,0))")
    parameter = error(f"def f({name}(N) X) -> (Y) {{ Y(i) = X(i) }}")
    output = error(f"def f(float(N) X) -> ({name}(N) Y) {{ Y(i) = X(i) }}")
    assert cast.hint.startswith(f"write `{meant}(x)`; types are bool, int8")
    assert parameter.hint.startswith(f"write `{meant}`; types are bool, int8") == bool(output.hint)
    assert output.hint == parameter.hint
    assert (parameter.kind, parameter.column) == ("syntax", 7)


def test_all_types_are_listed() -> None:
    for name in TYPES.split():
        tc.define(f"def f({name}(N) X) -> (Y) {{ Y(i) = X(i) }}")
    hint = error("def f(flaot(N) X) -> (Y) { Y(i) = X(i) }").hint
    assert hint == f"write `float`; types are {', '.join(TYPES.split())}"


@pytest.mark.parametrize("name", ["complex64", "complex128", "complex"])
def test_complex_numbers_are_two_tensors(name: str) -> None:
    for found in (
        in_statement(f"{name}(X(i,0))"),
        error(f"def f({name}(N) X) -> (Y) {{ Y(i) = X(i) }}"),
        error(f"def f(float(N) X) -> ({name}(N) Y) {{ Y(i) = X(i) }}"),
    ):
        assert "no complex types" in found.hint
        require_snippets_compile(found.hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("softmx(X(i,0))", "did you mean `softmax`? it is written as statements of its own:"),
        ("sigmod(X(i,0))", "did you mean `sigmoid`? `sigmoid(x)` is written"),
        ("fabz(X(i,0))", "did you mean `fabs`?"),
        ("EXP(X(i,0))", "did you mean `exp`?"),
        ("A_(i)", ""),
        ("int(X(i,0))", "write `int32(x)`; types are bool"),
    ],
)
def test_slips(value: str, hint: str) -> None:
    found = in_statement(value).hint
    assert found.startswith(hint) and bool(found) == bool(hint)


def test_snippets_name_what_the_library_has() -> None:
    """Those that it has are the same function: so says a call."""
    import numpy as np

    x = np.random.default_rng(0).standard_normal((3, 5), dtype=np.float32)
    header = "def f(float(N,M) X) -> (Y)"
    for name in ("softmax", "log_softmax"):
        ours = tc.define(f"{header} {{ {STATEMENTS[name]} }}")(x)
        np.testing.assert_allclose(ours, getattr(library, name)(x), rtol=1e-5, atol=1e-6)
    for name in ("mean", "var", "std", "argmax", "argmin", "prod", "amax", "amin"):
        ours = tc.define(f"{header} {{ {STATEMENTS[name]} }}")(x)
        np.testing.assert_allclose(ours, getattr(np, name)(x, 1), rtol=1e-5)


# ---- text


def body(text: str) -> TCError:
    return error(f"def f(float(N) X) -> (Y) {{ {text} }}")


AT = len("def f(float(N) X) -> (Y) { ") + 1


@pytest.mark.parametrize(
    ("text", "column", "hint"),
    [
        ("Y(i) = X(i) where i in [0, 2[", 23, "`[0, 2[` is `0:2`"),
        ("Y(i) = X(i) where i in [0, 2)", 23, "`[0, 2)` is `0:2`"),
        ("Y(i) = X(i) where i in [0, 2]", 23, "`[0, 2]` is `0:3`"),
        ("Y(i) = X(i) where i in [0:N]", 23, "`[0:N]` is `0:N+1`"),
        ("Y(i) = X(i) where i in 0,2", 24, "`i in 0:N`"),
        ("Y(i) = X(i) where i in 0..2", 25, "`i in 0:N`"),
        ("Y(i) = X(i) where i in range(0,2)", 34, "`i in 0:N`"),
        ("for t in range(N) { Y(t) = X(t) }", 9, "`for t in 1:N` from 1"),
        ("for (t in N) { Y(t) = X(t) }", 4, "`for t in 0:N"),
        ("Y(i) = X(i) > 0 and X(i) < 1 ? 1.0 : 0.0", 20, "`and` is written `&&`"),
        ("Y(i) = (X(i) > 0 or X(i) < 1) ? 1.0 : 0.0", 17, "`or` is written `||`"),
        ("Y(i) = not X(i) > 0 ? 1.0 : 0.0", 16, "`not` is written `!`"),
        ("Y(i) = not (X(i) > 0) ? 1.0 : 0.0", 7, "`not p` is written `!(p)`"),
        ("Y(i) = X(i) if X(i) > 0 else 0.0", 24, "`p ? a : b`"),
        ("Y(i) = (X(i) if X(i) > 0 else 0.0) * 2", 13, "`p ? a : b`"),
        ("Y(i) = where(X(i) > 0, X(i), 0.0)", 7, "`p ? a : b`"),
        ("Y(i) = max(X(i))", 15, "Y(i) max=! X(i,j)"),
        ("Y(i) = max(X(i), 0.0, 1.0)", 20, "`max(max(a, b), c)`"),
        ("Y(i) = np.exp(X(i))", 9, "no prefix"),
        ("Y = X[0]", 5, "stand in parentheses"),
    ],
)
def test_habits_in_the_text(text: str, column: int, hint: str) -> None:
    found = body(text)
    assert hint in found.hint
    assert found.column == AT + column
    require_snippets_compile(found.hint)


def test_what_is_near_a_habit_is_none() -> None:
    assert body("Y(i) = X(i) # this and that\n )").hint == ""
    tc.define("def f(float(N) X) -> (Y) { and(i) = X(i) Y(i) = and(i) }")


@pytest.mark.parametrize("header", ["float N X", "float X(N)", "X"])
def test_parameters_have_types_and_shapes(header: str) -> None:
    assert "`float(N) X`" in error(f"def f({header}) -> (Y) {{ Y(i) = X(i) }}").hint


@pytest.mark.parametrize(
    "text", ["mm.tc", "./x/mm.tc", "/a b/mm.tc", "C:\\\\x\\\\mm.tc", "x-1/mm.tc\n"]
)
def test_the_name_of_a_file_is_no_text(text: str) -> None:
    found = error(text)
    assert found.kind == "syntax" and f'pathlib.Path("{text.strip()}")' in found.hint


# ---- what is there before


@pytest.mark.parametrize("name", ["h", "S", "X", "i", "old", "N2"])
def test_the_state_of_a_loop(name: str) -> None:
    head = "def r(float(T,P) Z) -> (Q) { for s in T {"
    one = error(f"{head} {name}(n) = Z(s,n) + (s > 0 ? {name}(n) : 0.0)  Q(s,n) = {name}(n) }} }}")
    assert one.kind == "init" and "set it before the loop" in one.hint
    assert len(proposed(one.hint)) == 1
    require_snippets_compile(one.hint)
    every = error(f"{head} {name}(s,n) = Z(s,n) + {name}(s-1,n)  Q(s,n) = {name}(s,n) }} }}")
    assert "declare it as an output with its shape" in every.hint
    assert "set it before the loop" in every.hint and len(proposed(every.hint)) == 2
    require_snippets_compile(every.hint)


def test_a_temporary_set_before_the_loop_keeps_one_step() -> None:
    text = "def f(float(T,N) X) -> (Y) { for t in T { h(n) = h(n)  Y(n) = h(n) } }"
    snippet = proposed(error(text).hint)[0]
    kernel = tc.define(snippet).f
    assert [str(t) for t in kernel.signature.outputs.values()] == ["float32(N)"]


@pytest.mark.parametrize("op", ["+=", "*=", "max=", "min="])
@pytest.mark.parametrize("name", ["Y", "X", "old", "S"])
def test_accumulating_into_nothing(op: str, name: str) -> None:
    found = error(f"def f(float(N,P) Z) -> ({name}) {{ {name}(k) {op} Z(k,l) }}")
    assert found.kind == "init" and f"`{op}!` starts from the identity" in found.hint
    assert "pass that as an input" in found.hint and len(proposed(found.hint)) == 1
    require_snippets_compile(found.hint)


def test_reading_what_is_not_there() -> None:
    found = error("def f(float(N) X) -> (Y) { Y(i) = Y(i) + X(i) }")
    assert "is an input" in found.hint
    require_snippets_compile(found.hint)


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(N) X) -> (Y) { Y(i) = X(S*i) where i in 0:4 }",
        "def f(float(N) X, float(K) W) -> (Y) { Y(i) +=! X(S*i + k) * W(k) }",
        "def f(float(N) X) -> (Y) { Y +=! X(S*i) }",
    ],
)
def test_a_stride_that_is_no_size(text: str) -> None:
    found = error(text)
    assert found.kind == "affine" and found.hint.startswith("`S` is no size")
    assert "`X(2*i)`" in found.hint
    tc.define("def f(float(N) X) -> (Y) { Y(i) = X(2*i) }")
    require_snippets_compile(found.hint)


def test_a_product_of_indices_is_no_stride() -> None:
    found = error("def f(float(N) X, float(K) W) -> (Y) { Y(i,j) = X(i*j) }")
    assert "by integers and sizes only" in found.hint


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("A(i) // 2", "`/` of integers rounds down"),
        ("A(i) * 0x10", "numbers are decimal"),
        ("A(i) + 1.f", "numbers are decimal"),
        ("A(i) + 1_000", "numbers are decimal"),
        ("A(i) * pi", "`pi` is written `3.14"),
        ("A(i) + inf", "`inf` is written `INFINITY`"),
        ("not A(i)", "`not p` is written `!(p)`"),
        ("X(i, ...)", "every index has a name"),
        ("X(i, :)", "all of a dimension is"),
        ("X.T(i, j)", "tensors have no attributes: a transpose is `X(j,i)`"),
        ("A(i) where A(i) > 0", "a range is written"),
        ("A(i) where i > 0", "a range is written"),
        ("A(i) > 0 ? A(i)", "a choice has a value for either case"),
        ("0 <= A(i) < 1 ? 1.0 : 0.0", "comparisons do not chain"),
        ("A(i) where i = 0:N", "a range is written"),
        ("A(i) where 0 <= i < N", "a range is written"),
        ("A(i) return Y", "results are the names behind"),
        ("A(i) while N { Y(i) = A(i) }", "there is no `while`"),
        ("A(i) float t = 3.0", "tensors need no declaration"),
        ("A(i) Y(i) := A(i)", "`=` assigns"),
    ],
)
def test_what_other_languages_write(value: str, hint: str) -> None:
    found = in_statement(value)
    assert found.hint.startswith(hint)
    require_snippets_compile(found.hint)


@pytest.mark.parametrize("body", [":\n  Y(i) = X(i)", " { Y(i) = X(i) }"])
def test_a_def_without_results(body: str) -> None:
    found = error(f"def f(float(N) X){body}")
    assert found.hint.startswith("results are named behind the parameters")
    require_snippets_compile(found.hint)


def test_arithmetic_in_the_shape_of_a_parameter() -> None:
    found = error("def f(float(N+1) X) -> (Y) { Y(i) = X(i) }")
    assert found.hint.startswith("a dimension of a parameter is a name or an integer")


def test_a_tensor_without_subscripts() -> None:
    for value in ("exp(A)", "X(i,A)"):
        found = in_statement(value)
        assert found.kind == "rank" and found.hint.startswith("its elements are read, as `A(i)`")


def test_a_temporary_that_is_too_narrow_begins_wider() -> None:
    text = "def f(double(N) X) -> (Y) { t = 0.0  t += X(i)  Y = t }"
    assert error(text).hint.endswith("or have `t` begin as `float64(…)`")
    tc.define(text.replace("0.0", "float64(0.0)"))
    assert error(text.replace("-> (Y)", "-> (t, Y)")).hint.endswith("or declare `t` as float64")


# ---- statements that another language would have


@pytest.mark.parametrize(
    "name", ["argmax", "sum", "mean", "sort", "median", "any", "or", "fmax", "foo"]
)
@pytest.mark.parametrize("op", ["=!", "=", " =! "])
@pytest.mark.parametrize("body", ["{}", "for t in N {{ {} }}", "Y(i) +=! X(i,j)  {}"])
def test_what_is_no_reduction_says_so_in_one_error(name: str, op: str, body: str) -> None:
    head = f"def f({TENSORS}) -> (Y) {{ "
    text = head + body.format(f"Y(i) {name}{op}X(i,j)") + " }"
    found = error(text)
    assert (found.kind, found.others) == ("syntax", ()) and found.column == text.index(
        f" {name}{op}"
    ) + 2
    assert found.message.startswith(f"`{name}{op.strip()}` is no reduction") and found.hint
    require_snippets_compile(found.hint)


def test_a_call_before_an_assignment_is_two_statements() -> None:
    tc.define(
        "def add(inout float(N) Y) -> () { Y(i) += 1.0 }"
        "def f(inout float(N) Y) -> (s) { add(Y) s = 1.0 }"
    )


@pytest.mark.parametrize("before", ["", "Y(i) = A(i) ", "Y(i) = A(i)\n"])
@pytest.mark.parametrize("op", ["-=!", "-=", "/=!", "|=!", "&&=", "||=!", "%="])
def test_operators_that_reduce_nothing(op: str, before: str) -> None:
    found = in_statement_of(f"{before}Y(i) {op} X(i,j)")
    assert found.kind == "syntax" and found.hint.startswith("reductions are `+=`, `*=`, `min=`")


@pytest.mark.parametrize("op", ["max! ", "max =! ", "min = "])
def test_operators_are_one_word(op: str) -> None:
    assert "=!` is one word" in in_statement_of(f"Y(i) {op} X(i,j)").hint


def in_statement_of(statement: str) -> TCError:
    return error(f"def f({TENSORS}) -> (Y) {{ {statement} }}")


@pytest.mark.parametrize(
    ("value", "behind", "kind"),
    [
        ("A(i) B(i)", "B(…)", "call"),
        ("2 A(i)", "A(…)", "call"),
        ("X(i,0) exp(A(i))", "exp(…)", "call"),
        ("2.0 A(i) + 1.0", "A(i)", "syntax"),
        ("A(i) 2.0", "2.0", "syntax"),
        ("(A(i)) (B(i))", "(", "syntax"),
        ("A(i) k", "k", "syntax"),
    ],
)
def test_values_without_an_operator(value: str, behind: str, kind: str) -> None:
    found = in_statement(value)
    assert found.kind == kind and not found.others
    assert "without an operator" in found.hint or "an operator is missing" in found.hint
    assert behind in found.hint


@pytest.mark.parametrize(
    "statements",
    [
        "Y(i) = Y(i-1) + X(i,0)",
        "Y(i) = i > 0 ? 0.5 * Y(i-1) + X(i,0) : X(i,0)",
        "Y(i,j) = Y(i,j-1) + X(i,j)",
        "Y(i,j) = Y(j,i) + X(i,j) where i in 0:N, j in 0:N",
        "Y(i) = Y(N-1-i) + X(i,0)",
    ],
)
def test_a_recurrence_is_a_loop(statements: str) -> None:
    found = in_statement_of(statements)
    if "Y(j,i)" in statements:  # only names of indices: nothing says that it goes on
        assert found.kind == "init"
        return
    assert found.kind == "init" and "is a loop" in found.hint and "for t in T" in found.hint
    require_snippets_compile(found.hint)


def test_a_recurrence_with_a_first_element_is_a_loop() -> None:
    import numpy as np

    text = "def f(float(N) X) -> (float(N) Y) { Y(0) = X(0)  Y(i) = Y(i-1) + X(i) where i in 1:N }"
    with pytest.raises(TCError) as caught:
        tc.define(text)(np.ones(4, np.float32))
    assert caught.value.kind == "init" and "for t in T" in caught.value.hint


@pytest.mark.parametrize(
    "statement",
    [
        "Y(b,j) = X(off(b)+j) where j in 0:off(b+1)-off(b)",
        "Y(b,j) = X(j) where b in 0:P-1, j in off(b):off(b+1)",
        "Y(i,j) = X(j) where j in 0:i+1",
        "Y(j) = X(j) where j in off(0):off(1)",
    ],
)
def test_ragged_left_sides_name_three_ways(statement: str) -> None:
    found = error(f"def f(float(T) X, int32(P) off) -> (Y) {{ {statement} }}")
    assert found.kind == "range"
    (snippet,) = proposed(found.hint)
    assert list(tc.define(snippet)) == ["reduced", "padded", "flat"]


def test_what_is_counted_is_in_order() -> None:
    import numpy as np

    x = np.random.default_rng(0).integers(0, 5, 9).astype(np.float32)
    for name, expected in (
        ("sort", np.sort(x)),
        ("argsort", np.argsort(x, kind="stable")),
        ("median", np.median(x)),
    ):
        (snippet,) = proposed(in_statement(f"{name}(A(i))").hint)
        found = tc.define(snippet)(x)
        np.testing.assert_array_equal(found.m if name == "median" else found, expected)
