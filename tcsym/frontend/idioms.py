# SPDX-License-Identifier: Apache-2.0
"""What other languages have and this one writes differently: hints for names that are undefined.

Every snippet compiles; tests take them from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

NEAR = 0.7  # of `difflib`: below, a name is another name rather than a slip

# name: how it is called, and the same here.
EXPRESSIONS: Mapping[str, tuple[str, str]] = {
    "abs": ("abs(x)", "fabs(x)"),
    "and": ("a and b", "p && q"),
    "clamp": ("clamp(x, lo, hi)", "min(max(x, lo), hi)"),
    "clip": ("clip(x, lo, hi)", "min(max(x, lo), hi)"),
    "elu": ("elu(x)", "x > 0.0 ? x : expm1(x)"),
    "gelu": ("gelu(x)", "0.5 * x * (1.0 + erf(x * 0.70710678))"),
    "isnan": ("isnan(x)", "x != x"),
    "leaky_relu": ("leaky_relu(x)", "x > 0.0 ? x : 0.01 * x"),
    "lerp": ("lerp(a, b, t)", "a + t * (b - a)"),
    "maximum": ("maximum(a, b)", "max(a, b)"),
    "minimum": ("minimum(a, b)", "min(a, b)"),
    "mod": ("mod(a, b)", "a % b"),
    "not": ("not p", "!(p)"),
    "or": ("p or q", "p || q"),
    "power": ("power(a, b)", "pow(a, b)"),
    "reciprocal": ("reciprocal(x)", "1.0 / x"),
    "relu": ("relu(x)", "max(x, 0.0)"),
    "relu6": ("relu6(x)", "min(max(x, 0.0), 6.0)"),
    "select": ("select(p, a, b)", "p ? a : b"),
    "sigmoid": ("sigmoid(x)", "1.0 / (1.0 + exp(-x))"),
    "sign": ("sign(x)", "x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : 0.0)"),
    "silu": ("silu(x)", "x / (1.0 + exp(-x))"),
    "softplus": ("softplus(x)", "max(x, 0.0) + log1p(exp(-fabs(x)))"),
    "sqr": ("sqr(x)", "x * x"),
    "square": ("square(x)", "x * x"),
    "where": ("where(p, a, b)", "p ? a : b"),
}

# name: the same value here.
VALUES: Mapping[str, str] = {
    **dict.fromkeys(("pi", "PI", "M_PI"), "3.14159265358979"),
    **dict.fromkeys(("inf", "Inf", "Infinity", "infinity"), "INFINITY"),
    **dict.fromkeys(("nan", "NaN", "nanf"), "NAN"),
    "True": "true",
    "False": "false",
}

_MOMENTS = "s(i) +=! X(i,j)\nmu(i) = s(i) / M\nq(i) +=! (X(i,j) - mu(i)) * (X(i,j) - mu(i))\n"
_EXPONENTIALS = "m(i) max=! X(i,j)\ne(i,j) = exp(X(i,j) - m(i))\ns(i) +=! e(i,j)\n"
_VECTOR = "Y(i) = {} where i in 0:N"
_FIRST = "m(i) {} X(i,j)\nY(i) min=! X(i,j) == m(i) ? j : M"

# name: statements for `float(N,M) X` (with W, A and B for second operands).
STATEMENTS: Mapping[str, str] = {
    "all": "Y(i) min=! X(i,j) > 0.0",
    "amax": "Y(i) max=! X(i,j)",
    "amin": "Y(i) min=! X(i,j)",
    "any": "Y(i) max=! X(i,j) > 0.0",
    "arange": _VECTOR.format("i"),
    "argmax": _FIRST.format("max=!"),
    "argmin": _FIRST.format("min=!"),
    "cat": "Y(i) = i < N ? A(i) : B(i - N)",
    "concat": "Y(i) = i < N ? A(i) : B(i - N)",
    "concatenate": "Y(i) = i < N ? A(i) : B(i - N)",
    "cumsum": "a = 0.0\nfor t in N { a = a + A(t)  Y(t) = a }",
    "dot": "Y +=! A(i) * A(i)",
    "full": _VECTOR.format("2.5"),
    "layer_norm": f"{_MOMENTS}Y(i,j) = (X(i,j) - mu(i)) * rsqrt(q(i) / M + 1e-5)",
    "linear": "Y(i,k) +=! X(i,j) * W(j,k)",
    "log_softmax": f"{_EXPONENTIALS}Y(i,j) = X(i,j) - m(i) - log(s(i))",
    "logsumexp": f"{_EXPONENTIALS}Y(i) = m(i) + log(s(i))",
    "matmul": "Y(i,k) +=! X(i,j) * W(j,k)",
    "mean": "s(i) +=! X(i,j)\nY(i) = s(i) / M",
    "mm": "Y(i,k) +=! X(i,j) * W(j,k)",
    "norm": "q(i) +=! X(i,j) * X(i,j)\nY(i) = sqrt(q(i))",
    "ones": _VECTOR.format("1.0"),
    "permute": "Y(j,i) = X(i,j)",
    "prod": "Y(i) *=! X(i,j)",
    "product": "Y(i) *=! X(i,j)",
    "rms_norm": "q(i) +=! X(i,j) * X(i,j)\nY(i,j) = X(i,j) * rsqrt(q(i) / M + 1e-5)",
    "softmax": f"{_EXPONENTIALS}Y(i,j) = e(i,j) / s(i)",
    "std": f"{_MOMENTS}Y(i) = sqrt(q(i) / M)",
    "sum": "Y(i) +=! X(i,j)",
    "transpose": "Y(j,i) = X(i,j)",
    "var": f"{_MOMENTS}Y(i) = q(i) / M",
    "zeros": _VECTOR.format("0.0"),
}

_RANDOM = "def f(float(N) X, float(N) noise) -> (Y) { Y(i) = X(i) + noise(i) }"
_NO_RANDOM = "there are no random numbers: make them with numpy or torch and pass them as an input"
_SHAPES = "def f(float(N,M) X) -> (Y) { s(i) +=! X(i,j)  Y(i) = s(i) / M }"
_NO_SHAPES = "an extent is the name that it has in the type of the parameter, here `N` and `M`"

_RANKS = (
    "def f(float(N) X) -> (float(N) Y) {{\n"
    "  rank(i) +=! X(k) < X(i) || X(k) == X(i) && k < i ? 1 : 0\n"
    "  Y(rank(i)) +=! {}\n"
    "}}"
)
_COUNTED = "it is written by counting: the rank of an element is its place in order"

# name: what is so instead, and a def that does it.
OTHERWISE: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("rand", "randn", "random", "normal", "uniform"), (_NO_RANDOM, _RANDOM)),
    **dict.fromkeys(("len", "shape", "size"), (_NO_SHAPES, _SHAPES)),
    **dict.fromkeys(("sort", "sorted", "topk", "top_k"), (_COUNTED, _RANKS.format("X(i)"))),
    "argsort": (_COUNTED, _RANKS.format("i")),
    **dict.fromkeys(
        ("median", "quantile"),
        (
            _COUNTED,
            _RANKS.format("X(i)")
            .replace("-> (float(N) Y)", "-> (float(N) Y, m)")
            .replace("\n}", "\n  m = Y(N/2)\n}"),
        ),
    ),
    "dropout": (
        "there are no random numbers: draw the mask with numpy or torch and pass it as an input",
        "def f(float(N) X, bool(N) keep) -> (Y) { Y(i) = keep(i) ? X(i) / 0.9 : 0.0 }",
    ),
    "range": (
        "a loop names its range: `for t in N` runs from 0 to N - 1, `for t in 1:N` from 1",
        "def f(float(N) X) -> (float(N) Y) {\n"
        "  Y(0) = X(0)\n"
        "  for t in 1:N { Y(t) = Y(t-1) + X(t) }\n"
        "}",
    ),
}

TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 half bfloat16 float double"
# Types of other languages, and the same here.
SAME_TYPES: Mapping[str, str] = {
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **{f"fp{n}": f"float{n}" for n in (16, 32, 64)},
    "bf16": "bfloat16",
    "bfloat": "bfloat16",
    "boolean": "bool",
    "byte": "uint8",
    "char": "int8",
    "float_": "float",
    "int": "int32",
    "integer": "int32",
    "long": "int64",
    "real": "float",
    "short": "int16",
    "single": "float",
    "size_t": "int64",
    "uint": "uint32",
    "unsigned": "uint32",
}


def block(text: str) -> str:
    """A snippet as hints show it: on lines of its own."""
    return "\n" + "\n".join(f"    {line}" for line in text.splitlines())


def name_hint(name: str, known: Iterable[str]) -> str:
    """What to write instead of the function or tensor `name`; '' if nothing is like it."""
    names = list(known)
    same = [x for x in names if x.lower() == name.lower()]
    if same:
        return f"did you mean `{same[0]}`?"
    found = _idiom(name) or type_hint(name, cast=True)
    if found:
        return found
    elsewhere = [*EXPRESSIONS, *STATEMENTS, *OTHERWISE]
    close = get_close_matches(name, [*names, *elsewhere], 1, NEAR)
    if not close:
        return ""
    return f"did you mean `{close[0]}`?" if close[0] in names else _idiom(close[0], slip=True)


def reduced_hint(name: str) -> str:
    """For `name` in a statement with `=`: no index of its left side."""
    if name in VALUES:
        return f"`{name}` is written `{VALUES[name]}`"
    if name == "not":
        return _idiom(name)
    return f"sum over `{name}` with `+=!`, or name a tensor or size of that spelling"


# Names of reductions elsewhere, and the operators here.
_REDUCTIONS = {
    **dict.fromkeys(("add", "plus", "count"), "+=!"),
    **dict.fromkeys(("mul", "times"), "*=!"),
    **dict.fromkeys(("fmax", "maximum", "or"), "max=!"),
    **dict.fromkeys(("fmin", "minimum", "and"), "min=!"),
}


def reduction_hint(name: str) -> str:
    """For `name=!` in place of a reduction."""
    if name in _REDUCTIONS:
        return f"write `{_REDUCTIONS[name]}`; with `!` it starts from the identity"
    if name in STATEMENTS or name in OTHERWISE:
        return _idiom(name)
    return "with `!` they start from the identity; what is none of them is several statements"


def _idiom(name: str, slip: bool = False) -> str:
    """slip: somebody wrote something like the name."""
    meant, it = (f"did you mean `{name}`? ", "it") if slip else ("", f"`{name}`")
    if name in EXPRESSIONS:
        call, expression = EXPRESSIONS[name]
        return f"{meant}`{call}` is written `{expression}`"
    if name in STATEMENTS:
        statements = STATEMENTS[name]
        what = "statements" if "\n" in statements else "a statement"
        return f"{meant}{it} is written as {what} of its own:{block(statements)}"
    if name in OTHERWISE:
        says, example = OTHERWISE[name]
        return f"{meant}{says}:{block(example)}"
    return ""


def type_hint(name: str, cast: bool = False) -> str:
    """What to write instead of the type `name`; '' if that is not like one."""
    if name.lower().startswith("complex") or name in ("c64", "c128"):
        return "there are no complex types: pass real and imaginary parts as two tensors:" + block(
            "def f(float(N) re, float(N) im) -> (P) { P(i) = re(i) * re(i) + im(i) * im(i) }"
        )
    meant = SAME_TYPES.get(name.lower(), "")
    if not meant and not cast:
        close = get_close_matches(name, TYPES.split(), 1, NEAR)
        meant = close[0] if close else ""
    if not meant:
        return ""
    shown = f"{meant}(x)" if cast else meant
    return f"write `{shown}`; types are {', '.join(TYPES.split())}"


# ---- values that are there before, and strides


def unwritten_hint(name: str, in_loop: bool, by_step: bool) -> str:
    """For a read of `name` before anything is written to it. by_step: at a loop variable."""
    shown = _shown(name, "N T X f i old t")
    start = block(
        f"def f(float(T,N) X) -> ({shown}) {{\n"
        f"  {shown}(i) = 0.0 where i in 0:N\n"
        f"  for t in T {{ {shown}(i) = tanh({shown}(i) + X(t,i)) }}\n"
        "}"
    )
    if not in_loop:
        example = f"def f(float(N) old, float(N) X) -> ({shown}) {{ {shown}(i) = old(i) + X(i) }}"
        return f"assign it first; a value from before the call is an input:{block(example)}"
    if not by_step:
        return (
            "set it before the loop; in the loop it then has the value of the step before, "
            f"and one step is kept:{start}"
        )
    every = block(
        f"def f(float(T,N) X) -> (float(T,N) {shown}) {{\n"
        f"  for t in T {{ {shown}(t,i) = tanh((t > 0 ? {shown}(t-1,i) : 0.0) + X(t,i)) }}\n"
        "}"
    )
    return (
        f"to keep all steps, declare it as an output with its shape:{every}\n"
        f"to keep one step, leave the step out and set it before the loop:{start}"
    )


def recurrence_hint(name: str) -> str:
    """For a statement that reads other elements of `name`, which it assigns itself."""
    shown = _shown(name, "N T X f t")
    example = block(
        f"def f(float(T) X) -> (float(T) {shown}) {{\n"
        f"  for t in T {{ {shown}(t) = (t > 0 ? {shown}(t-1) : 0.0) + X(t) }}\n"
        "}"
    )
    return (
        "a statement reads what was there before it, at all points; what goes on from one element "
        f"to the next is a loop:{example}"
    )


RAGGED = (
    "rows that differ in length are read, not written: reduce over them, pad them, or leave them "
    "behind one another and say of each element in which row it is:"
    + block(
        "def reduced(float(T) X, int32(P) off) -> (Y) {\n"
        "  Y(b) +=! X(t) where b in 0:P-1, t in off(b):off(b+1)\n"
        "}\n"
        "def padded(float(T) X, int32(P) off) -> (float(P-1,L) Y) {\n"
        "  Y(b,l) = l < off(b+1) - off(b) ? X(off(b)+l) : 0.0\n"
        "}\n"
        "def flat(float(T) X, float(B) m, int32(T) row) -> (Y) { Y(t) = X(t) - m(row(t)) }"
    )
)
"""For a left index variable whose range reads a tensor or uses another index."""


def whole_tensor_hint(name: str) -> str:
    """For a tensor with dimensions that is read without subscripts."""
    return f"its elements are read, as `{name}(i)`; an index must have a name of its own"


def accumulated_hint(op: str, name: str) -> str:
    """For `name op …` before anything is written to it."""
    shown = _shown(name, "N M X f i j old")
    example = (
        f"def f(float(N) old, float(N,M) X) -> ({shown}) {{\n"
        f"  {shown}(i) = old(i)\n"
        f"  {shown}(i) {op} X(i,j)\n"
        "}"
    )
    return (
        f"`{op}!` starts from the identity; to go on from an old value, pass that as an input:"
        f"{block(example)}"
    )


def stride_hint(name: str) -> str:
    """For a product of an index variable and `name`, which somebody may have meant as a size."""
    shown = _shown(name, "N X Y f i step")
    return (
        f"`{name}` is no size, for no parameter or output has it in its shape; write a number, as "
        "in `X(2*i)`, or take it from a shape:"
        + block(f"def f(float(N) X, float({shown}) step) -> (Y) {{ Y(i) = X({shown}*i) }}")
    )


def _shown(name: str, taken: str) -> str:
    """The name in a snippet, which has taken some."""
    return name if name not in taken.split() else "S"
