# SPDX-License-Identifier: Apache-2.0
"""Syntax tree -> resolved program: types, literals, subscripts, calls; errors with their place."""

import pytest

from tcsym.builtins import ARITY
from tcsym.errors import ERROR_KINDS, Span, TCError
from tcsym.frontend.check import resolve
from tcsym.frontend.limits import MAX_OPERATORS
from tcsym.frontend.parser import parse
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.frontend.resolved import (
    ResolvedFor,
    ResolvedIf,
    ResolvedProgram,
    ResolvedStatement,
    ResolvedTensor,
    Unify,
    Variable,
)
from tcsym.index.expr import floordiv, ge, index, maximum, mod, var
from tcsym.types import DType

BOOL, I8, U8, U32, I32, I64, U64 = (
    DType(n) for n in ("bool", "int8", "uint8", "uint32", "int32", "int64", "uint64")
)
F16, BF16, F32, F64 = (DType(n) for n in ("float16", "bfloat16", "float32", "float64"))

PARAMS = (
    "float(N) A, float(N,M) B, int32(N) P, uint8(N) U, uint32(N) V, int64(N) L, uint64(N) W, "
    "double(N) D, half(N) H, bfloat16(N) G, bool(N) Q, float a"
)
HEAD = f"def f({PARAMS}) -> (C) {{ "
AT = len(HEAD) + 1  # column of the first statement
i, j, N, M, t = (var(x) for x in "ijNMt")


def program(text: str, name: str = "f") -> ResolvedProgram:
    return resolve(parse(text))[name]


def statement(body: str) -> ResolvedStatement:
    """The last statement of a body."""
    last = program(f"{HEAD}{body} }}").body[-1]
    assert isinstance(last, ResolvedStatement)
    return last


def value(text: str) -> Expr:
    return statement(f"C(i) = {text}").value


def read(name: str, dtype: DType) -> Read:
    return Read(name, (i,), dtype)


A, P, U, V, L, D, H, G, Q = (
    read(name, dtype)
    for name, dtype in zip("APUVLDHGQ", (F32, I32, U8, U32, I64, F64, F16, BF16, BOOL))
)
I_VALUE = IndexValue(i, I32)
WIDE_H, TENTH = Cast(H, F32), Const(0.10000000149011612, F32)  # as halves are computed with


# ---- types


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A(i) + D(i)", Binary("add", Cast(A, F64), D, F64)),
        ("H(i) * G(i)", Binary("mul", Cast(H, F32), Cast(G, F32), F32)),
        ("A(i) - P(i)", Binary("sub", A, Cast(P, F32), F32)),
        ("U(i) + P(i)", Binary("add", Cast(U, I32), P, I32)),
        ("V(i) % P(i)", Binary("mod", Cast(V, I64), Cast(P, I64), I64)),
        ("Q(i) * A(i)", Binary("mul", Cast(Q, F32), A, F32)),
        ("Q(i) + Q(i)", Binary("add", Q, Q, BOOL)),
        ("A(i) * i", Binary("mul", A, Cast(I_VALUE, F32), F32)),
        ("i * N", Binary("mul", I_VALUE, IndexValue(N, I32), I32)),
        ("-U(i)", Unary("neg", U, U8)),
        ("!Q(i)", Unary("not", Q, BOOL)),
        ("V(i) < P(i)", Compare("lt", V, P)),
        ("U(i) >= A(i)", Compare("ge", Cast(U, F32), A)),
        ("Q(i) == Q(i)", Compare("eq", Q, Q)),
        ("max(V(i), P(i))", Binary("max", Cast(V, I64), Cast(P, I64), I64)),
        ("Q(i) ? U(i) : A(i)", Select(Q, Cast(U, F32), A, F32)),
        ("Q(i) && i > 2", Binary("and", Q, Compare("gt", IndexValue(i, I64), Const(2, I64)), BOOL)),
        ("half(A(i))", Cast(A, F16)),
        ("half(H(i))", H),
        ("half(H(i) * H(i))", Cast(Binary("mul", WIDE_H, WIDE_H, F32), F16)),
        ("exp(P(i))", Call("exp", (Cast(P, F32),), F32)),
        ("pow(H(i), P(i))", Cast(Call("pow", (WIDE_H, Cast(P, F32)), F32), F16)),
        ("fma(D(i), A(i), 2)", Call("fma", (D, Cast(A, F64), Const(2.0, F64)), F64)),
    ],
)
def test_promotion(text: str, expected: Expr) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1 + 2", Binary("add", Const(1, I32), Const(2, I32), I32)),
        ("D(i) + 0.1", Binary("add", D, Const(0.1, F64), F64)),
        ("H(i) + 0.1", Cast(Binary("add", WIDE_H, TENTH, F32), F16)),
        ("G(i) + 0.1", Cast(Binary("add", Cast(G, F32), TENTH, F32), BF16)),
        ("0.1 + A(i)", Binary("add", Const(0.10000000149011612, F32), A, F32)),
        ("P(i) + 0.5", Binary("add", Cast(P, F32), Const(0.5, F32), F32)),
        ("L(i) + 9999999999", Binary("add", L, Const(9999999999, I64), I64)),
        ("U(i) + 1", Binary("add", Cast(U, I32), Const(1, I32), I32)),
        ("U(i) > -1", Compare("gt", U, Const(-1, I32))),
        ("V(i) > (1)", Compare("gt", V, Const(1, U32))),
        ("Q(i) + 1", Binary("add", Cast(Q, I32), Const(1, I32), I32)),
        ("A(i) * -(2)", Binary("mul", A, Const(-2.0, F32), F32)),
        ("P(i) - --1", Binary("sub", P, Unary("neg", Const(-1, I32), I32), I32)),
        ("Q(i) ? H(i) : -INFINITY", Cast(Select(Q, WIDE_H, Const(float("-inf"), F32), F32), F16)),
        ("Q(i) == true", Compare("eq", Q, Const(1, BOOL))),
        ("double(0.1)", Const(0.1, F64)),
        ("uint8(300)", Const(44, U8)),
        ("uint8(-1)", Const(255, U8)),
        ("int8(1e10)", Const(127, I8)),
        ("int8(NAN)", Const(0, I8)),
        ("bool(0.5)", Const(1, BOOL)),
        ("0.1", Const(0.10000000149011612, F32)),
    ],
)
def test_literals(text: str, expected: Expr) -> None:
    assert value(text) == expected


def test_a_let_has_the_type_of_its_expression() -> None:
    s = statement("C(i) = D(i) * x where x = 0.1")
    assert s.value == Binary("mul", D, Cast(Const(0.10000000149011612, F32), F64), F64)


@pytest.mark.parametrize(
    "declared, text, expected",
    [
        ("int8", "-128", Const(-128, I8)),
        ("bool", "1", Const(1, BOOL)),
        ("float", "Q(i)", Cast(Q, F32)),
        ("double", "U(i) + A(i)", Binary("add", Cast(U, F64), Cast(A, F64), F64)),
        ("half", "0.1", Const(0.0999755859375, F16)),
        ("float", "A(i)", A),
    ],
)
def test_assignment_converts_to_the_declared_type(declared: str, text: str, expected: Expr) -> None:
    p = program(f"def f({PARAMS}) -> ({declared}(N) C) {{ C(i) = {text} }}")
    (s,) = p.body
    assert isinstance(s, ResolvedStatement)
    assert s.value == expected


# ---- operators


@pytest.mark.parametrize(
    "body, op, initialise, expected",
    [
        ("C(i) +=! B(i,j)", "+=", True, Read("B", (i, j), F32)),
        ("C(i) +=! A(i)", "=", False, A),
        ("C(i) max=! U(i)", "max=", True, U),
        ("C(i) = D(i) C(i) += A(i)", "+=", False, A),
        ("C(i) = D(i) C(i) *= 2", "*=", False, Const(2.0, F64)),
    ],
)
def test_operators(body: str, op: str, initialise: bool, expected: Expr) -> None:
    s = statement(body)
    assert (s.op, s.initialise, s.value) == (op, initialise, expected)


def test_variables_are_in_order_with_their_first_place_in_the_text() -> None:
    s = statement("C(i) +=! B(i,j) * A(k) where k in 1:N, l in 0:3")
    assert s.variables == (
        Variable("i", False),
        Variable("k", True, (index(1), N)),
        Variable("l", True, (index(0), index(3))),
        Variable("j", True),
    )
    assert [v.span.column - AT for v in s.variables] == [2, 20, 39, 13]
    assert s.variables[1].where_span == Span(1, AT + 29, 8)
    assert (s.span, s.subscript_spans) == (Span(1, AT, 1), (Span(1, AT + 2, 1),))


# ---- subscripts


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2*i + 1", i * 2 + 1),
        ("M*i + j", M * i + j),
        ("i % N", mod(i, N)),
        ("(i + 3) / 2", floordiv(i + 3, 2)),
        ("max(0, i - 2)", maximum(0, i - 2)),
        ("x + 1", i * 3 + 1),
        ("2000000000 * i", i * 2000000000),
    ],
)
def test_subscripts_of_index_variables_are_exact(text: str, expected: object) -> None:
    s = statement(f"C(i,j) = A({text}) + x where x = 3*i")
    r = s.value.left if isinstance(s.value, Binary) else None
    assert isinstance(r, Read)
    assert r.subscripts == (expected,)


def wide(x: Expr) -> Cast:
    return Cast(x, I64)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("P(i)", wide(P)),
        ("P(i) + i", Binary("add", wide(P), IndexValue(i, I64), I64, True)),
        ("-P(i)", Binary("sub", Const(0, I64), wide(P), I64, True)),
        ("int32(A(i))", wide(Cast(A, I32))),
        ("int32(i)", wide(Cast(I_VALUE, I32))),
        ("int32(exp(i))", wide(Cast(Call("exp", (Cast(I_VALUE, F32),), F32), I32))),
        ("A(i) > 0 ? 1 : N", None),
    ],
)
def test_subscripts_that_depend_on_data_are_int64(text: str, expected: Expr | None) -> None:
    s = statement(f"C(i) = A({text})")
    assert isinstance(s.value, Read)
    (subscript,) = s.value.subscripts
    if expected is None:
        test = Compare("gt", A, Const(0.0, F32))
        expected = Select(test, Const(1, I64), IndexValue(N, I64), I64)
    assert subscript == expected


def test_left_subscripts() -> None:
    p = program(HEAD + "for t in N { C(t+1, N-1, (i), 0) = A(i) } }")
    (loop,) = p.body
    assert isinstance(loop, ResolvedFor)
    (s,) = loop.body
    assert isinstance(s, ResolvedStatement)
    assert s.subscripts == (t + 1, N - 1, i, index(0))


# ---- headers, loops, conditions


def test_header() -> None:
    p = program("def f(float(N,3) A, bool b) -> (O, half(Q*2, N/2) P, int8(Q) R) {"
                " O = b P(i,j) = 0.0 R(i) = 1 tmp(i) = A(i,0) }")  # fmt: skip
    assert (p.sizes, p.free_sizes) == (("N", "Q"), ("Q",))
    q = var("Q")
    assert p.tensors == (
        ResolvedTensor("A", F32, 2, (N, index(3)), "input"),
        ResolvedTensor("b", BOOL, 0, (), "input"),
        ResolvedTensor("O", BOOL, 0, None, "output"),
        ResolvedTensor("P", F16, 2, (q * 2, floordiv(N, 2)), "output"),
        ResolvedTensor("R", I8, 1, (q,), "output"),
        ResolvedTensor("tmp", F32, 1, None, "temporary"),
    )
    assert p.tensors[3].span == Span(1, 51, 1)
    assert p.tensors[3].dimension_spans == (Span(1, 41, 3), Span(1, 46, 3))


def test_loop_variables_are_unique_and_conditions_exact() -> None:
    p = program(HEAD + "for t in N { C(t) = 0.0 } for t in 1:N-1 { if t % 2 >= 1 { C(t) = t } } }")
    first, second = p.body
    assert isinstance(first, ResolvedFor) and isinstance(second, ResolvedFor)
    t2 = var(second.variable)
    assert (first.variable, second.variable) == ("t", "t.2")
    assert (second.lower, second.upper) == (index(1), N - 1)
    (choice,) = second.body
    assert isinstance(choice, ResolvedIf)
    assert choice.condition == ge(mod(t2, 2), 1)
    (s,) = choice.then
    assert isinstance(s, ResolvedStatement)
    assert (s.subscripts, s.value) == ((t2,), Cast(IndexValue(t2, I32), F32))


# ---- calls

FC = "def fc(float(B,M) X, half k) -> (Y) { T(i) +=! X(i,m) Y(i) = T(i) * k }\n"


def test_calls_are_inlined_under_fresh_names() -> None:
    p = program(FC + "def f(float(P,4) X) -> (Z) { h = fc(X, 2) Z = fc(X, 0.5) }")
    assert [x.name for x in p.tensors] == ["X", "Z", "fc1.k", "h", "fc1.T", "fc2.k", "fc2.T"]
    unify, scalar, reduction, last = p.body[:4]
    assert unify == Unify("X", ("fc1.B", "fc1.M"))
    assert isinstance(unify, Unify) and unify.span.column == 34
    assert scalar == ResolvedStatement("fc1.k", (), "=", False, (), Const(2.0, F32))
    i1, m1 = var("fc1.i"), var("fc1.m")
    assert reduction == ResolvedStatement(
        "fc1.T",
        (i1,),
        "+=",
        True,
        (Variable("fc1.i", False), Variable("fc1.m", True)),
        Read("X", (i1, m1), F32),
    )
    assert isinstance(last, ResolvedStatement) and last.target == "h"


def test_an_existing_target_is_replaced_by_a_copy() -> None:
    text = "def g(float(N) A) -> (C) { C(i) = A(i) }\n"
    p = program(text + "def f(float(N) A) -> (double(N) C) { C = g(A) }")
    assert p.body[2:4] == (
        Unify("g1.C", ("g1.C.0.size",)),
        Unify("C", ("g1.C.0.size",)),
    )
    copy = p.body[4]
    assert isinstance(copy, ResolvedStatement)
    assert copy.value == Cast(Read("g1.C", (var("g1.C.0"),), F32), F64)


def test_nested_calls_and_declared_shapes() -> None:
    text = """def f(float(N) A) -> (C) { C = g(A) }
    def g(float(K) A) -> (C) { C = h(A) }
    def h(float(L) A) -> (float(L+1) C) { for t in L { C(t) = A(t) C(t+1) = A(t) } }"""
    p = program(text)
    assert p.body[:2] == (Unify("A", ("g1.K",)), Unify("A", ("g1.h1.L",)))
    (c,) = (x for x in p.tensors if x.name == "C")
    assert c.shape == (var("g1.h1.L") + 1,)
    assert isinstance(p.body[2], ResolvedFor) and p.body[2].variable == "g1.h1.t"


# ---- errors: kind, column after the start of the body, words


def error(text: str) -> TCError:
    with pytest.raises(TCError) as e:
        resolve(parse(text))
    assert type(e.value) is ERROR_KINDS[e.value.kind]
    return e.value


BODIES = [
    ("C(i) = A(i) + Z(i)", "name", 14, "undefined tensor or function `Z`"),
    ("C(i) = fabz(A(i))", "name", 7, "did you mean `fabs`?"),
    ("C(i) = N(i)", "name", 7, "`N` is a size, not a tensor"),
    ("C(log) = A(0)", "name", 2, "built-in"),
    ("C(A) = A(0)", "name", 2, "`A` is a tensor"),
    ("log(i) = A(i) C = a", "name", 0, "cannot be redefined"),
    ("C(i) = A(i) where N in 0:3", "name", 18, "a size, not an index variable"),
    ("C(i) = x where x = A(i), x in 1:2", "name", 25, "not an index variable"),
    ("C(i) = A(i) where x = Z(i)", "name", 22, "undefined"),
    ("C(i) = A(i) where exists Z(i)", "name", 25, "undefined"),
    ("C(i) = A(i) <=> g(A, z)", "name", 21, "undefined name `z`"),
    ("for log in N { C(i) = A(i) }", "name", 4, "built-in"),
    ("for t in Z { C(t) = A(t) }", "name", 9, "undefined name `Z`"),
    ("C(i) = j where j = A(j)", "name", 15, "its own definition"),
    ("C(i,i) = A(i)", "duplicate", 4, "`i` appears twice"),
    ("C(i) = x where x = A(i), x = 2", "duplicate", 25, "`x`"),
    ("C(i) = A(i) where i = 2", "duplicate", 18, "an index variable"),
    ("C(i) = A(i) where A = 2", "duplicate", 18, "tensor"),
    ("C(i) = A(i) where i in 0:N, i in 0:N", "duplicate", 28, "two ranges"),
    ("for t in N { for t in N { C(t) = a } }", "duplicate", 17, "loop variable"),
    ("for N in 3 { C(N) = a }", "duplicate", 4, "size"),
    ("A(i) = a C = a", "immutable", 0, "it is an input"),
    ("N = 3 C = a", "immutable", 0, "it is a size"),
    ("for t in N { C(t) = a t = 3 }", "immutable", 22, "it is a loop variable"),
    ("C(i) = B(i)", "rank", 7, "has 2 dimensions but is read with 1"),
    ("C(i) = A", "rank", 7, "has 1 dimension but is read with 0"),
    ("C(i) = a(i)", "rank", 7, "has 0 dimensions"),
    ("C(i) = A(i) C = a", "rank", 12, "`C` has 1 dimension"),
    ("C(i) = A(i + .5)", "type", 9, "integral"),
    ("C(i) = A(Q(i))", "type", 9, "integral, not bool"),
    ("C(i) = A(i) ? 1 : 2", "type", 7, "boolean, not float32"),
    ("C(i) = 2 * !A(i)", "type", 11, "boolean"),
    ("C(i) = Q(i) && P(i)", "type", 15, "boolean"),
    ("C(i) = 1 + (Q(i) - Q(i))", "type", 12, "not defined for bool"),
    ("C(i) = 1 + -Q(i)", "type", 11, "bool"),
    ("C(i) = P(i) C(i) = A(i)", "type", 12, "narrower type int32"),
    ("C(i) = P(i) C(i) = 0.5", "type", 12, "narrower"),
    ("C(i) = Q(i) C(i) = 2", "type", 19, "does not fit type bool"),
    ("C(i) = P(i) + 9999999999", "type", 14, "does not fit type int32"),
    ("C(i) = V(i) * (-1)", "type", 15, "does not fit type uint32"),
    ("C(i) = H(i) * 1e39", "type", 14, "infinite"),
    ("C(i) = 1e400", "type", 7, "infinite"),
    ("C(i) +=! A(i) where k in 0:2.5", "type", 27, "integral"),
    ("for t in 2.5 { C(t) = a }", "type", 9, "integral"),
    ("C(i) = A(j) * B(i,k)", "reduction", 9, "`j` is not on the left"),
    ("C(i) = A(i) where k in 0:3", "reduction", 18, "`k`"),
    ("C(i) +=! A(i) where k in 0:a", "type", 27, "must be integral"),
    ("C(i) = A(i) where i in 0:P(0)", "range", 25, "reads the tensor `P`"),
    ("C(i) +=! A(i) where k in 0:P(k)", "range", 29, "reads `P` at `k`, an index variable"),
    ("C(i) +=! A(i) where k in 0:P(P(i))", "range", 29, "reads `P` at `P`, a tensor"),
    ("C(i) +=! A(i) where k in 0:j, j in 0:3", "range", 27, "no size and has no range before"),
    ("C(i) +=! A(i) where k in 0:P(i)*P(i)", "affine", 27, "affine in the variables it uses"),
    ("C(i) +=! B(i,j) where j in Z:3", "range", 27, "has no range before (unknown name)"),
    ("for t in N { C(i) = A(i) where i in 0:t }", "range", 38, "loop variable"),
    ("C(i) = A(i) where x = P(0), i in 0:x", "range", 35, "reads the tensor `P`"),
    ("C(i,j) = A(i * j)", "affine", 11, "product of index variables"),
    ("C(i,j) = A(1 + i % j)", "affine", 11, "division"),
    ("C(P(i)) = A(i)", "affine", 2, "left subscript"),
    ("C(2*i) = A(i)", "affine", 2, "left subscript"),
    ("C(0.5) = a", "affine", 2, "left subscript"),
    ("for t in N { C(t/2) = A(t) }", "affine", 15, "left subscript"),
    ("for t in N { for u in t*t { C(0) = a } }", "affine", 22, "loop bound"),
    ("for t in N { C(t) +=! A(j) where j in 0:t*t }", "affine", 40, "the end of a range"),
    ("C(i) = C(i) + A(i)", "init", 7, "before"),
    ("C(i) = T(i) T(i) = A(i)", "init", 7, "before"),
    ("C(i) += A(i)", "init", 0, "`+=!` starts from the identity"),
    ("for t in N { C(t) = C(t-1) }", "init", 20, "an output with its shape"),
    ("C(i) = pow(A(i))", "call", 7, "takes 2 arguments, not 1"),
    ("C(i) = f(A)", "call", 7, "inside an expression"),
    ("C, T = g(A)", "call", 7, "undefined def `g`"),
    ("for t in a { C(t) = a }", "loop", 9, "reads the tensor `a`"),
    ("for t in P(0) { C(t) = a }", "loop", 9, "reads the tensor `P`"),
    ("if N > 2 { C = a }", "condition", 0, "only inside a `for`"),
    ("for t in N { if A(t) > 0 { C(t) = a } }", "condition", 16, "reads the tensor `A`"),
    ("for t in N { if t > j { C(t) = a } }", "condition", 20, "no loop variable"),
    ("for t in N { if t { C(t) = a } }", "condition", 16, "boolean"),
    ("for t in N { if t*t > 2 { C(t) = a } }", "condition", 16, "affine"),
    ("for t in N { if t > 0.5 { C(t) = a } }", "condition", 16, "affine"),
]


@pytest.mark.parametrize("body, kind, offset, words", BODIES)
def test_errors_in_statements(body: str, kind: str, offset: int, words: str) -> None:
    e = error(f"{HEAD}{body} }}")
    assert (e.kind, e.line, e.column) == (kind, 1, AT + offset)
    assert words in str(e)
    assert not e.others


TEXTS = [
    ("def f() -> (C) { C = 1 }\ndef f() -> (C) { C = 1 }", "duplicate", 2, 5, "`f`"),
    ("def exp() -> (C) { C = 1 }", "name", 1, 5, "built-in"),
    ("def f(float(log) A) -> (C) { C = 1 }", "name", 1, 13, "built-in"),
    ("def f(float A, float A) -> (C) { C = 1 }", "duplicate", 1, 22, "`A`"),
    ("def f(float(N) N) -> (C) { C = 1 }", "duplicate", 1, 16, "`N`"),
    ("def f(float A, float(A) B) -> (C) { C = 1 }", "duplicate", 1, 22, "`A`"),
    ("def f() -> (C, C) { C = 1 }", "duplicate", 1, 16, "`C`"),
    ("def f(float A) -> (A) { C = 1 }", "duplicate", 1, 20, "`A`"),
    ("def f(float a) -> (float(a) C) { C(i) = a }", "duplicate", 1, 26, "`a`"),
    ("def f() -> (C, D) { C = 1 }", "init", 1, 16, "`D` is never assigned"),
    ("def f() -> (float(N) C) { C = 1.0 }", "rank", 1, 27, "`C` has 1 dimension"),
    ("def f() -> (int8(N) C) { C(i) = 1+2 }", "type", 1, 26, "narrower type int8"),
    ("def f() -> (float(Q+1) C) { C(i) = 1 }", "affine", 1, 19, "known sizes"),
    ("def f() -> (float(2, 1.5) C) { C(i,j) = 1 }", "type", 1, 22, "float"),
    ("def f() -> (float(Q) B, float(3/Q) C) { B = 1 C = 1 }", "affine", 1, 31, "constants"),
    ("def f(float a) -> (float(a*2) C) { C(i) = a }", "affine", 1, 26, "known sizes"),
]
G_DEF = "def g(float(N) A, int8 k) -> (C, D) { C(i) = A(i) D(i) = k where exists A(i) }\n"
F_DEF = "def f(float(N) A, int32(N) P, float(N,N) B, float x) -> (C, D) { %s }"
CALLS = [
    ("C, D = g(A)", "call", 7, "takes 2 arguments, but 1"),
    ("C, D, E = g(A, 1)", "call", 10, "returns 2 tensors, but 3"),
    ("D = x C = g(A, 1)", "call", 10, "returns 2"),
    ("D = x C = (g(A, 1))", "call", 11, "inside an expression"),
    ("C, D = h(A)", "call", 7, "undefined def `h`"),
    ("for t in N { C, D = g(A, 1) }", "call", 20, "inside a `for` loop"),
    ("C, D = g(A(0), 1)", "call", 9, "name of a tensor"),
    ("C, D = g(N, 1)", "call", 9, "name of a tensor"),
    ("C, D = g(Z, 1)", "name", 9, "undefined tensor `Z`"),
    ("C, D = g(P, 1)", "type", 9, "`A` of `g` has type float32"),
    ("C, D = g(B, 1)", "rank", 9, "`A` of `g` has 1"),
    ("C, D = g(A, 300)", "type", 12, "does not fit type int8"),
    ("C, D = g(A, x)", "type", 12, "narrower type int8"),
    ("C, D = g(A, N)", "type", 12, "narrower type int8"),
    ("C, D = g(A, A)", "rank", 12, "has 1 dimension"),
    ("C, D = g(T, 1) T(i) = A(i)", "init", 9, "before"),
    ("C, A = g(A, 1) D = x", "immutable", 3, "it is an input"),
    ("C, C = g(A, 1) D = x", "duplicate", 3, "twice"),
    ("C(i) = x where exists A(i) C, D = g(A, 1) ", "", 0, ""),
    ("C = x D(i) = A(i) C, D = g(A, 1)", "rank", 18, "`C` has 0 dimensions"),
    ("C(i) = P(i) D(i) = A(i) C, D = g(A, 1)", "type", 24, "narrower type int32"),
]


@pytest.mark.parametrize("text, kind, line, column, words", TEXTS)
def test_errors_in_headers(text: str, kind: str, line: int, column: int, words: str) -> None:
    e = error(text)
    assert (e.kind, e.line, e.column) == (kind, line, column)
    assert words in str(e)


@pytest.mark.parametrize("body, kind, offset, words", CALLS)
def test_errors_in_calls(body: str, kind: str, offset: int, words: str) -> None:
    text = G_DEF + F_DEF % body
    if not kind:
        resolve(parse(text))
        return
    e = error(text)
    column = F_DEF.index("%s") + 1 + offset
    assert words in str(e)
    assert (e.kind, e.line, e.column) == (kind, 2, column)


def test_recursion_is_reported_where_it_closes() -> None:
    text = "def f(float(N) A) -> (C) { C = g(A) }\ndef g(float(N) A) -> (C) { C = f(A) }"
    e = error(text)
    assert (e.kind, e.line, e.column, e.others) == ("call", 2, 32, ())


def test_free_sizes_are_for_entry_points() -> None:
    text = "def g() -> (int32(Q) C) { C(i) = i }\ndef f() -> (C) { C = g() }"
    e = error(text)
    assert (e.kind, e.line, e.column) == ("call", 2, 22)
    assert "free size `Q`" in str(e)


def test_errors_are_collected_in_text_order_without_cascades() -> None:
    text = f"""{HEAD}
  x(i) = Z(i)
  y(i) = x(i) + 1.0
  C(i) = y(i) + A
  C(i) = A(k)
}}
def g(float a) -> (C) {{ C = a && b }}
def h(float a) -> (C) {{ C = g(a) }}"""
    e = error(text)
    kinds = [(x.kind, x.line, x.column) for x in (e, *e.others)]
    assert kinds == [("name", 2, 10), ("reduction", 5, 12), ("type", 7, 29)]
    assert str(e).count("^") == 4 + 1 + 1


def test_at_most_ten_errors() -> None:
    body = " ".join(f"x{k} = Z(0)" for k in range(20))
    assert len(error(f"{HEAD}{body} C = a }}").others) == 9


def test_every_built_in_resolves() -> None:
    assert len(ARITY) == 64
    for name, n in ARITY.items():
        assert value(f"{name}({', '.join(['A(i)'] * n)})") == Call(name, (A,) * n, F32)


@pytest.mark.parametrize(
    "left, middle, right", [("A(int32(", "i", "))"), ("exp(", "a", ")"), ("-(", "a", ")")]
)
def test_deep_nesting(left: str, middle: str, right: str) -> None:
    n = 199 // (left.count("(") + left.count("-"))
    value(left * n + middle + right * n)


def test_long_chains() -> None:
    value("A(i)" + " + A(i)" * MAX_OPERATORS)


@pytest.mark.parametrize(
    ("name", "hint"), [("a", "`A`"), ("relu", "`max(x, 0.0)`"), ("expp", "`exp`"), ("zzzz", "")]
)
def test_an_unknown_function_gets_a_hint_where_one_is_near(name: str, hint: str) -> None:
    with pytest.raises(TCError) as caught:
        resolve(parse(f"def f(float(N) A) -> (C) {{ C(i) = {name}(A(i)) }}"))
    assert caught.value.kind == "name"
    assert hint in caught.value.hint and bool(hint) == bool(caught.value.hint)
