# SPDX-License-Identifier: Apache-2.0
"""einsum notation -> program text: statements, broadcasting, result types, errors."""

import pytest

from tcsym.errors import RankError, TCSyntaxError
from tcsym.frontend.check import resolve
from tcsym.frontend.einsum import einsum_source, result_type
from tcsym.frontend.parser import parse
from tcsym.types import DType

F32, F64, I8, I32, U8, BF16, F16, BOOL = (
    DType(n)
    for n in ("float32", "float64", "int8", "int32", "uint8", "bfloat16", "float16", "bool")
)


def statement(spec: str, n: int = 2, shapes: list[tuple[int, ...]] | None = None) -> str:
    source = einsum_source(spec, [F32] * n, shapes).source
    resolve(parse(source))
    return source.splitlines()[1].strip()


@pytest.mark.parametrize(
    "spec, n, text",
    [
        ("ij,jk", 2, "O(i_i,i_k) +=! x0(i_i,i_j) * x1(i_j,i_k)"),
        ("ij, jk -> ki", 2, "O(i_k,i_i) +=! x0(i_i,i_j) * x1(i_j,i_k)"),
        ("ba", 1, "O(i_a,i_b) = x0(i_b,i_a)"),
        ("aB", 1, "O(i_B,i_a) = x0(i_a,i_B)"),
        ("ii", 1, "O +=! x0(i_i,i_i)"),
        ("ii->i", 1, "O(i_i) = x0(i_i,i_i)"),
        ("i,i->", 2, "O +=! x0(i_i) * x1(i_i)"),
        ("i,", 2, "O(i_i) = x0(i_i) * x1"),
        ("i,j", 2, "O(i_i,i_j) = x0(i_i) * x1(i_j)"),
        ("y0->y", 1, None),
    ],
)
def test_statements(spec: str, n: int, text: str | None) -> None:
    if text is None:
        with pytest.raises(TCSyntaxError, match="unexpected `0` in `y0`, expected a letter"):
            statement(spec, n)
    else:
        assert statement(spec, n) == text


def test_ellipsis_is_aligned_at_the_right_and_broadcasts() -> None:
    shapes = [(5, 1, 2, 3), (4, 3, 6)]
    e = einsum_source("...ij,...jk", [F32] * 2, shapes)
    assert e.squeezed == ((1,), ())
    assert e.source == (
        "def einsum(float32(n_1,n_i,n_j) x0, float32(n_0,n_j,n_k) x1) -> (O) {\n"
        "  O(i_1,i_0,i_i,i_k) +=! x0(i_1,i_i,i_j) * x1(i_0,i_j,i_k)\n}\n"
    )
    assert einsum_source("i,i->i", [F32] * 2, [(1,), (3,)]).squeezed == ((0,), ())
    assert einsum_source("i,i->i", [F32] * 2, [(1,), (1,)]).squeezed == ((), ())
    assert einsum_source("ii,i->i", [F32] * 2, [(1, 3), (3,)]).squeezed == ((), ())


def test_ellipsis_inside_and_transposed() -> None:
    assert (
        statement("a...b->b...a", 1, [(2, 3, 4, 5)]) == "O(i_b,i_1,i_0,i_a) = x0(i_a,i_1,i_0,i_b)"
    )
    assert statement("...->...", 1, [(2,)]) == "O(i_0) = x0(i_0)"


@pytest.mark.parametrize(
    "spec, shapes, kind, words",
    [
        ("ij,jk", [(2, 3)], RankError, "has 2 operands; 1 are given"),
        ("ij", [(2,)], RankError, "operand 0 has 1 dimension, not 2"),
        ("i...", [()], RankError, "operand 0 has 0 dimensions, not 1"),
        ("i->j", [(2,)], TCSyntaxError, "output label `j` is in no operand"),
        ("i->ii", [(2,)], TCSyntaxError, "output label `i` appears twice"),
        ("i->i->i", [(2,)], TCSyntaxError, "one output"),
        ("......i", [(2,)], TCSyntaxError, "unexpected `.`"),
        ("...i->i", [(2, 2)], TCSyntaxError, "lacks the ellipsis"),
    ],
)
def test_errors(spec: str, shapes: list[tuple[int, ...]], kind: type, words: str) -> None:
    with pytest.raises(kind) as e:
        einsum_source(spec, [F32] * len(shapes), shapes)
    assert words in str(e.value)


def test_ellipsis_needs_shapes() -> None:
    with pytest.raises(RankError, match="shapes are needed"):
        einsum_source("...i", [F32])


@pytest.mark.parametrize(
    "dtypes, result",
    [
        ((I32, F32), F64),
        ((U8, I8), DType.INT16),
        ((BOOL, I8), I8),
        ((F16, F32), F32),
        ((BF16, F16), F32),
        ((BF16, BF16), BF16),
        ((DType.UINT64, DType.INT64), F64),
    ],
)
def test_result_types(dtypes: tuple[DType, ...], result: DType) -> None:
    assert result_type(dtypes) is result
    source = einsum_source("i,i->i", dtypes).source
    program = resolve(parse(source))["einsum"]
    assert [t.dtype for t in program.tensors if t.role == "output"] == [result]


def statements(spec: str, shapes: list[tuple[int, ...]], dtype: DType = F32) -> list[str]:
    source = einsum_source(spec, [dtype] * len(shapes), shapes, optimize=True).source
    resolve(parse(source))
    return [line.strip() for line in source.splitlines()[1:-1]]


def test_products_are_taken_in_the_order_with_the_fewest_points() -> None:
    left = [
        "t0(i_m,i_l) +=! x0(i_m,i_k) * x1(i_k,i_l)",
        "O(i_m,i_n) +=! x2(i_l,i_n) * t0(i_m,i_l)",
    ]
    right = [
        "t0(i_k,i_n) +=! x1(i_k,i_l) * x2(i_l,i_n)",
        "O(i_m,i_n) +=! x0(i_m,i_k) * t0(i_k,i_n)",
    ]
    assert statements("mk,kl,ln->mn", [(2, 20), (20, 20), (20, 20)]) == left
    assert statements("mk,kl,ln->mn", [(20, 20), (20, 20), (20, 2)]) == right


def test_what_one_operand_alone_sums_is_summed_first() -> None:
    assert statements("ij,jk->k", [(20, 20), (20, 20)]) == [
        "t0(i_j) +=! x0(i_i,i_j)",
        "O(i_k) +=! x1(i_j,i_k) * t0(i_j)",
    ]


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("ij,jk->ik", [(20, 20), (20, 20)]),
        ("i,j,k->ijk", [(20,), (20,), (20,)]),
        ("bi,bj,bij->b", [(20, 20), (20, 20), (20, 20, 20)]),
        ("mk,kl,ln->mn", [(2, 1), (1, 2), (2, 1)]),
    ],
)
def test_one_statement_where_taking_apart_gains_little(
    spec: str, shapes: list[tuple[int, ...]]
) -> None:
    assert len(statements(spec, shapes)) == 1


def test_labels_between_steps_stand_as_in_the_output() -> None:
    kron = statements("mabc,ax,by,cz->mxyz", [(64, 16, 16, 16)] + [(16, 16)] * 3)
    assert [line.partition(" ")[0] for line in kron] == [
        "t0(i_m,i_x,i_b,i_c)",
        "t1(i_m,i_x,i_y,i_c)",
        "O(i_m,i_x,i_y,i_z)",
    ]


def test_half_types_are_wide_between_steps() -> None:
    assert statements("mk,kl,ln->mn", [(2, 20), (20, 20), (20, 20)], F16) == [
        "t0(i_m,i_l) +=! float32(x0(i_m,i_k)) * float32(x1(i_k,i_l))",
        "t1(i_m,i_n) +=! float32(x2(i_l,i_n)) * t0(i_m,i_l)",
        "O(i_m,i_n) = float16(t1(i_m,i_n))",
    ]
