# SPDX-License-Identifier: Apache-2.0
"""Hand-written naive kernels, as the polyhedral stage would lower them."""

from __future__ import annotations

from collections.abc import Callable

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
)
from tcsym.index.expr import Index, ge, index, var
from tcsym.ir.loops import Block, Branch, Buffer, Kernel, Loop, Node, Store, Update, allocated
from tcsym.types import DType

F32 = DType.FLOAT32


def v(names: str) -> tuple[Index, ...]:
    return tuple(var(n) for n in names.split())


def buf(
    name: str, shape: str | tuple[Index | int, ...], dtype: DType = F32, private: str | None = None
) -> Buffer:
    """An argument, or with `private` (possibly empty) a temporary."""
    extents = v(shape) if isinstance(shape, str) else tuple(map(index, shape))
    if private is None:
        return Buffer(name, dtype, extents)
    return Buffer(name, dtype, extents, "arena", private=frozenset(private.split()))


def rd(name: str, *subs: Index | int | Expr, dtype: DType = F32) -> Read:
    return Read(name, tuple(index(s) if isinstance(s, int) else s for s in subs), dtype)


def st(name: str, subs: tuple[Index | int, ...], value: Expr, label: str = "S") -> Store:
    return Store(name, tuple(map(index, subs)), value, label)


def up(name: str, subs: tuple[Index | int, ...], op: str, value: Expr, label: str = "U") -> Update:
    return Update(name, tuple(map(index, subs)), op, value, label)  # type: ignore[arg-type]


def op(o: str, a: Expr, b: Expr, dtype: DType = F32) -> Binary:
    return Binary(o, a, b, dtype)  # type: ignore[arg-type]


def con(x: float, dtype: DType = F32) -> Const:
    return Const(x, dtype)


def par(name: str, upper: Index | int | str, *body: Node, lower: Index | int = 0) -> Loop:
    return _loop(name, lower, upper, body, "parallel")


def red(name: str, upper: Index | int | str, *body: Node, lower: Index | int = 0) -> Loop:
    return _loop(name, lower, upper, body, "reduction")


def seq(name: str, upper: Index | int | str, *body: Node, lower: Index | int = 0) -> Loop:
    return _loop(name, lower, upper, body, "sequential")


def _loop(name: str, lower: Index | int, upper: Index | int | str, body: tuple, order: str) -> Loop:
    hi = var(upper) if isinstance(upper, str) else index(upper)
    inner = body[0] if len(body) == 1 else Block(body)
    return Loop(name, index(lower), hi, inner, "serial", order)  # type: ignore[arg-type]


def kernel(name: str, sizes: str, buffers: list[Buffer], body: Node) -> Kernel:
    arguments = tuple(b.name for b in buffers if b.space == "argument")
    for b in buffers:
        if b.space != "argument":
            body = allocated(b.name, body)
    return Kernel(name, tuple(sizes.split()), arguments, tuple(buffers), body)


def matmul_bias_relu() -> Kernel:
    i, j, k = v("i j k")
    body = par(
        "i",
        "M",
        par(
            "j",
            "N",
            st("C", (i, j), rd("b", j)),
            red("k", "K", up("C", (i, j), "add", op("mul", rd("A", i, k), rd("B", k, j)))),
            st("O", (i, j), op("max", rd("C", i, j), con(0.0))),
        ),
    )
    return kernel(
        "matmul",
        "M N K",
        [
            buf("A", "M K"),
            buf("B", "K N"),
            buf("b", "N"),
            buf("O", "M N"),
            buf("C", "M N", private="i j"),
        ],
        body,
    )


def matmul(a: str = "MK", b: str = "KN", dtype: DType = F32) -> Kernel:
    """Plain product straight into an output; `a` = KM and `b` = NK are transposed operands."""
    i, j, k = v("i j k")
    left = rd("A", *((i, k) if a == "MK" else (k, i)), dtype=dtype)
    right = rd("B", *((k, j) if b == "KN" else (j, k)), dtype=dtype)
    zero = con(0.0 if dtype.is_float else 0, dtype)
    body = par(
        "i",
        "M",
        par(
            "j",
            "N",
            st("C", (i, j), zero),
            red("k", "K", up("C", (i, j), "add", op("mul", left, right, dtype))),
        ),
    )
    buffers = [buf("A", " ".join(a), dtype), buf("B", " ".join(b), dtype), buf("C", "M N", dtype)]
    return kernel(f"mm_{a}_{b}", "M N K", buffers, body)


def far_rows() -> Kernel:
    """Z[a,b,c] += X[b,d,a] * Y[d,c]: rows a lie side by side, rows b do not."""
    a, b, c, d = v("a b c d")
    term = op("mul", rd("X", b, d, a), rd("Y", d, c))
    inner = par(
        "c", "C", st("Z", (a, b, c), con(0)), red("d", "D", up("Z", (a, b, c), "add", term))
    )
    body = par("a", "A", par("b", "B", inner))
    buffers = [buf("X", "B D A"), buf("Y", "D C"), buf("Z", "A B C")]
    return kernel("far_rows", "A B C D", buffers, body)


def far_columns() -> Kernel:
    """Z[a,d] += X[a,e,f] * Y[d,f,e]: columns and steps lie dimensions apart in Y."""
    a, d, e, f = v("a d e f")
    term = op("mul", rd("X", a, e, f), rd("Y", d, f, e))
    terms = red("e", "E", red("f", "F", up("Z", (a, d), "add", term)))
    body = par("a", "A", par("d", "D", st("Z", (a, d), con(0)), terms))
    buffers = [buf("X", "A E F"), buf("Y", "D F E"), buf("Z", "A D")]
    return kernel("far_columns", "A D E F", buffers, body)


def term_matmul(name: str, term: Callable[[Expr, Expr], Expr], shift: int = 0) -> Kernel:
    """C(i,j) += term(A(i,k), B(k - shift,j))"""
    i, j, k = v("i j k")
    value = term(rd("A", i, k), rd("B", k - shift, j))
    body = par(
        "i",
        "M",
        par("j", "N", st("C", (i, j), con(0.0)), red("k", "K", up("C", (i, j), "add", value))),
    )
    return kernel(name, "M N K", [buf("A", "M K"), buf("B", "K N"), buf("C", "M N")], body)


def after_first(value: Expr) -> Expr:
    """`value` where k >= 1, else 0."""
    k = IndexValue(var("k"), DType.INT64)
    return Select(Compare("ge", k, Const(1, DType.INT64)), value, con(0.0), F32)


def guarded_operand() -> Kernel:
    return term_matmul("guarded_operand", lambda a, b: op("mul", a, after_first(b)), 1)


def guarded_term() -> Kernel:
    """No guard that ends of the sum could say."""
    i, k = (IndexValue(var(n), DType.INT64) for n in "ik")
    beside = Compare("ne", i, k)
    return term_matmul("guarded_term", lambda a, b: Select(beside, op("mul", a, b), con(0.0), F32))


def computed_operands() -> Kernel:
    return term_matmul(
        "computed",
        lambda a, b: op("mul", op("add", a, con(1.0)), op("max", op("sub", b, con(2.0)), con(0.0))),
    )


def batched() -> Kernel:
    n, i, j, k = v("n i j k")
    body = par(
        "n",
        "B",
        par(
            "i",
            "M",
            par(
                "j",
                "N",
                st("C", (n, i, j), con(0.0)),
                red(
                    "k",
                    "K",
                    up("C", (n, i, j), "add", op("mul", rd("X", n, i, k), rd("Y", n, k, j))),
                ),
            ),
        ),
    )
    return kernel("bmm", "B M N K", [buf("X", "B M K"), buf("Y", "B K N"), buf("C", "B M N")], body)


def softmax() -> Kernel:
    i, j, c, m = v("i j c m")
    body = par(
        "i",
        "M",
        st("Mx", (i,), con(float("-inf"))),
        red("j", "N", up("Mx", (i,), "max", rd("X", i, j))),
        st("Sm", (i,), con(0.0)),
        red(
            "c",
            "N",
            st("E", (i, c), Call("fabs", (op("sub", rd("X", i, c), rd("Mx", i)),), F32)),
            up("Sm", (i,), "add", rd("E", i, c)),
        ),
        par("m", "N", st("O", (i, m), op("sub", rd("E", i, m), rd("Sm", i)))),
    )
    return kernel(
        "softmax",
        "M N",
        [
            buf("X", "M N"),
            buf("O", "M N"),
            buf("Mx", "M", private="i"),
            buf("Sm", "M", private="i"),
            buf("E", "M N", private="i"),
        ],
        body,
    )


def column_sum() -> Kernel:
    i, j = v("i j")
    body = par(
        "j", "N", st("O", (j,), con(0.0)), red("i", "M", up("O", (j,), "add", rd("X", i, j)))
    )
    return kernel("colsum", "M N", [buf("X", "M N"), buf("O", "N")], body)


def total() -> Kernel:
    i, j = v("i j")
    body = Block(
        (
            st("O", (), con(0.0)),
            red("i", "M", red("j", "N", up("O", (), "add", rd("X", i, j)))),
        )
    )
    return kernel("total", "M N", [buf("X", "M N"), buf("O", "")], body)


def transposition() -> Kernel:
    i, j = v("i j")
    body = par("i", "N", par("j", "M", st("O", (i, j), rd("X", j, i))))
    return kernel("transpose", "M N", [buf("X", "M N"), buf("O", "N M")], body)


def transposed_sum() -> Kernel:
    i, j = v("i j")
    body = par("i", "N", par("j", "M", st("O", (i, j), op("add", rd("X", j, i), rd("Y", i, j)))))
    return kernel("addt", "M N", [buf("X", "M N"), buf("Y", "N M"), buf("O", "N M")], body)


def gather() -> Kernel:
    i, j = v("i j")
    at = Cast(rd("I", i, dtype=DType.INT32), DType.INT64)
    read = Read("T", (at, j), F32, (True, False))
    body = par("i", "M", par("j", "N", st("O", (i, j), read)))
    return kernel(
        "lut", "M N V", [buf("T", "V N"), buf("I", "M", DType.INT32), buf("O", "M N")], body
    )


def triangular() -> Kernel:
    i, j = v("i j")
    body = par(
        "i",
        "M",
        st("O", (i,), con(0.0)),
        red("j", i + 1, up("O", (i,), "add", rd("X", i, j))),
    )
    return kernel("triangular", "M", [buf("X", "M M"), buf("O", "M")], body)


def triangular_matmul() -> Kernel:
    i, j, k = v("i j k")
    body = par(
        "i",
        "M",
        par(
            "j",
            "N",
            st("C", (i, j), con(0.0)),
            red("k", i + 1, up("C", (i, j), "add", op("mul", rd("A", i, k), rd("B", k, j)))),
        ),
    )
    return kernel("trmm", "M N", [buf("A", "M M"), buf("B", "M N"), buf("C", "M N")], body)


def convolution(stride: int = 1, kernel_size: int | None = None) -> Kernel:
    n, o, h, w, c, p, q = v("n o h w c p q")
    P, Q = (var("P"), var("Q")) if kernel_size is None else (index(kernel_size),) * 2
    read = rd("X", n, c, h * stride + p, w * stride + q)
    body = par(
        "n",
        "B",
        par(
            "o",
            "F",
            par(
                "h",
                "H",
                par(
                    "w",
                    "W",
                    st("T", (n, o, h, w), con(0.0)),
                    red(
                        "c",
                        "C",
                        red(
                            "p",
                            P,
                            red(
                                "q",
                                Q,
                                up("T", (n, o, h, w), "add", op("mul", read, rd("K", o, c, p, q))),
                            ),
                        ),
                    ),
                    st("O", (n, o, h, w), op("max", rd("T", n, o, h, w), con(0.0))),
                ),
            ),
        ),
    )
    H, W = var("H"), var("W")
    image = (var("B"), var("C"), (H - 1) * stride + P, (W - 1) * stride + Q)
    return kernel(
        "conv",
        "B F C H W P Q" if kernel_size is None else "B F C H W",
        [
            buf("X", image),
            buf("K", (var("F"), var("C"), P, Q)),
            buf("O", "B F H W"),
            buf("T", "B F H W", private="n o h w"),
        ],
        body,
    )


def attention() -> Kernel:
    s, u, d, a = v("s u d a")
    u2, d2, u3, u4 = v("u2 d2 u3 u4")
    body = par(
        "s",
        "S",
        par(
            "u",
            "U",
            st("P", (s, u), con(0.0)),
            red("d", "D", up("P", (s, u), "add", op("mul", rd("Q", s, d), rd("K", u, d)))),
            st("P2", (s, u), op("mul", rd("P", s, u), con(2.0))),
        ),
        st("Mx", (s,), con(float("-inf"))),
        red("u2", "U", up("Mx", (s,), "max", rd("P2", s, u2))),
        st("Sm", (s,), con(0.0)),
        red(
            "u3",
            "U",
            st("E", (s, u3), op("sub", rd("P2", s, u3), rd("Mx", s))),
            up("Sm", (s,), "add", rd("E", s, u3)),
        ),
        par("u4", "U", st("At", (s, u4), op("add", rd("E", s, u4), rd("Sm", s)))),
        par(
            "d2",
            "D",
            st("O", (s, d2), con(0.0)),
            red("a", "U", up("O", (s, d2), "add", op("mul", rd("At", s, a), rd("V", a, d2)))),
        ),
    )
    temps = [buf(t, "S U", private="s") for t in ("P2", "E", "At")]
    return kernel(
        "attention",
        "S U D",
        [
            buf("Q", "S D"),
            buf("K", "U D"),
            buf("V", "U D"),
            buf("O", "S D"),
            buf("P", "S U", private="s u"),
            buf("Mx", "S", private="s"),
            buf("Sm", "S", private="s"),
            *temps,
        ],
        body,
    )


def rnn() -> Kernel:
    """H(t) = max(X(t) Wx^T + H(t-1) Wh^T, 0), the first step without the second product."""
    t, b, h, k, g = v("t b h k g")
    body = seq(
        "t",
        "T",
        par(
            "b",
            "B",
            par(
                "h",
                "H",
                st("A", (t, b, h), con(0.0)),
                red(
                    "k", "I", up("A", (t, b, h), "add", op("mul", rd("X", t, b, k), rd("Wx", h, k)))
                ),
                Branch(
                    ge(t, 1),
                    red(
                        "g",
                        "H",
                        up("A", (t, b, h), "add", op("mul", rd("O", t - 1, b, g), rd("Wh", h, g))),
                    ),
                ),
                st("O", (t, b, h), op("min", op("max", rd("A", t, b, h), con(0.0)), con(7.0))),
            ),
        ),
    )
    return kernel(
        "rnn",
        "T B H I",
        [
            buf("X", "T B I"),
            buf("Wx", "H I"),
            buf("Wh", "H H"),
            buf("O", "T B H"),
            buf("A", "T B H", private="t b h"),
        ],
        body,
    )


def state_in_output() -> Kernel:
    """S(t) = max(H0 U^T if t = 0 else S(t-1) U^T, 0), accumulated in the output itself."""
    t, b, h, k, g = v("t b h k g")
    first = up("S", (t, b, h), "add", op("mul", rd("H0", b, k), rd("U", h, k)))
    later = up("S", (t, b, h), "add", op("mul", rd("S", t - 1, b, g), rd("U", h, g)))
    zero = st("S", (t, b, h), con(0.0))
    step = Branch(
        ge(0, t), Block((zero, red("k", "H", first))), Block((zero, red("g", "H", later)))
    )
    last = st("S", (t, b, h), op("min", rd("S", t, b, h), con(7.0)))
    body = seq("t", "T", par("b", "B", par("h", "H", step, last)))
    return kernel("state", "T B H", [buf("H0", "B H"), buf("U", "H H"), buf("S", "T B H")], body)


def elementwise(dtype: DType = F32) -> Kernel:
    (i,) = v("i")
    body = par(
        "i",
        "N",
        st("T", (i,), op("add", rd("X", i, dtype=dtype), rd("Y", i, dtype=dtype), dtype)),
        st("O", (i,), op("mul", rd("T", i, dtype=dtype), rd("T", i, dtype=dtype), dtype)),
    )
    return kernel(
        "elementwise",
        "N",
        [
            buf("X", "N", dtype),
            buf("Y", "N", dtype),
            buf("O", "N", dtype),
            buf("T", "N", dtype, "i"),
        ],
        body,
    )


def guarded() -> Kernel:
    """A select on the index, an index as value, and a statement under a condition."""
    i, j = v("i j")
    inside = Compare("lt", IndexValue(j, DType.INT64), IndexValue(i + 1, DType.INT64))
    body = par(
        "i",
        "M",
        par(
            "j",
            "N",
            st("O", (i, j), Select(inside, rd("X", i, j), con(0.0), F32)),
            Branch(ge(j, i), st("P", (i, j), con(1.0)), st("P", (i, j), con(2.0))),
        ),
    )
    return kernel("guarded", "M N", [buf("X", "M N"), buf("O", "M N"), buf("P", "M N")], body)


def mean_of_columns() -> Kernel:
    """Normalisation along the first axis: all unit strides are in the outer loop."""
    i, j, k = v("i j k")
    body = par(
        "j",
        "N",
        st("S", (j,), con(0.0)),
        red("i", "M", up("S", (j,), "add", rd("X", i, j))),
        par("k", "M", st("O", (k, j), op("sub", rd("X", k, j), rd("S", j)))),
    )
    return kernel(
        "columns", "M N", [buf("X", "M N"), buf("O", "M N"), buf("S", "N", private="j")], body
    )


def matvec() -> Kernel:
    i, k = v("i k")
    body = par(
        "i",
        "M",
        st("y", (i,), con(0.0)),
        red("k", "K", up("y", (i,), "add", op("mul", rd("A", i, k), rd("x", k)))),
    )
    return kernel("matvec", "M K", [buf("A", "M K"), buf("x", "K"), buf("y", "M")], body)


def pooling() -> Kernel:
    h, w, p, q = v("h w p q")
    body = par(
        "h",
        "H",
        par(
            "w",
            "W",
            st("O", (h, w), con(float("-inf"))),
            red("p", 2, red("q", 2, up("O", (h, w), "max", rd("X", h * 2 + p, w * 2 + q)))),
        ),
    )
    return kernel("pool", "H W", [buf("X", (var("H") * 2, var("W") * 2)), buf("O", "H W")], body)


ALL = {
    "matmul_bias_relu": matmul_bias_relu,
    "matmul": matmul,
    "matmul_at": lambda: matmul("KM", "KN"),
    "matmul_bt": lambda: matmul("MK", "NK"),
    "matmul_atbt": lambda: matmul("KM", "NK"),
    "far_rows": far_rows,
    "far_columns": far_columns,
    "matmul_int32": lambda: matmul(dtype=DType.INT32),
    "matmul_int8": lambda: matmul(dtype=DType.INT8),
    "matmul_half": lambda: matmul(dtype=DType.FLOAT16),
    "guarded_operand": guarded_operand,
    "guarded_term": guarded_term,
    "computed_operands": computed_operands,
    "matmul_float64": lambda: matmul(dtype=DType.FLOAT64),
    "batched": batched,
    "softmax": softmax,
    "column_sum": column_sum,
    "total": total,
    "transposition": transposition,
    "transposed_sum": transposed_sum,
    "gather": gather,
    "triangular": triangular,
    "triangular_matmul": triangular_matmul,
    "convolution": convolution,
    "convolution3": lambda: convolution(1, 3),
    "convolution_strided": lambda: convolution(2, 3),
    "attention": attention,
    "rnn": rnn,
    "state_in_output": state_in_output,
    "elementwise": elementwise,
    "elementwise_int8": lambda: elementwise(DType.INT8),
    "guarded": guarded,
    "mean_of_columns": mean_of_columns,
    "matvec": matvec,
    "pooling": pooling,
}
