# SPDX-License-Identifier: Apache-2.0
"""The Python contract (DESIGN section 3): define, modules, and what kernels tell of themselves."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import tcsym as tc

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TWO = "def f(float(N) A) -> (O) { O(i) = A(i) }\ndef stats(float(N) A) -> (S) { S +=! A(i) }"
PAD = "def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }"


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


# ---- import and define


def test_import_is_light() -> None:
    heavy = ["numpy", "tcsym.target.llvm", "islpy", "lark", "rich", "torch", "jax", "click"]
    code = (
        f"import sys, tcsym as tc\n"
        f"assert not [m for m in {heavy} if m in sys.modules]\n"
        f"m = tc.define({MM!r})\n"
        f"assert not [m for m in {heavy[1:2] + heavy[4:]} if m in sys.modules]\n"
        f"assert set(tc.__all__) <= set(dir(tc))\n"
        f"[getattr(tc, name) for name in tc.__all__]\n"
        f"assert tc.strategy.Auto() and tc.TCError.kind == 'error'\n"
        f"try: tc.nothing\n"
        f"except AttributeError: pass\n"
        f"else: assert False"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_define_raises_compile_errors() -> None:
    with pytest.raises(tc.TCSyntaxError) as caught:
        tc.define("def f(", filename="my.tc")
    assert str(caught.value).startswith("my.tc:1:7: ")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"strategy": "fast"}, tc.OptionError),
        ({"strategy": 3}, tc.OptionError),
        ({"strategy": "pad"}, tc.OptionError),
        ({"target": "gpu"}, tc.OptionError),
        ({"target": 3}, tc.OptionError),
        ({"target": []}, tc.OptionError),
        ({"target": "cuda:sm_90"}, tc.OptionError),
        ({"options": {"bind": "never"}}, tc.OptionError),
    ],
)
def test_define_refuses_settings(settings: Any, error: Any) -> None:
    with pytest.raises(error):
        tc.define(MM, **settings)


def test_define_wants_text() -> None:
    with pytest.raises(tc.TCTypeError):
        tc.define(b"def")  # type: ignore[arg-type]


# ---- modules


def test_module_is_a_mapping_of_defs() -> None:
    m = tc.define(TWO)
    assert list(m) == ["f", "stats"] and len(m) == 2 and "f" in m and "g" not in m
    assert m.f is m["f"] and m.f.name == "f"
    with pytest.raises(KeyError):
        m["g"]
    with pytest.raises(AttributeError, match="did you mean `stats`"):
        _ = m.stat
    assert {"f", "stats"} <= set(dir(m))


def test_module_with_several_defs_is_not_callable() -> None:
    with pytest.raises(tc.CallError) as caught:
        tc.define(TWO)(ones(3))
    assert "f, stats" in str(caught.value)


def test_single_def_delegates() -> None:
    m = tc.define(MM)
    assert m.mm is m["mm"] and m.signature.name == "mm" and m.stats is m.mm.stats
    assert m.reference(ones(2, 3), ones(3, 4)).tolist() == [[3.0] * 4] * 2


def test_def_named_like_an_attribute() -> None:
    m = tc.define("def stats(float(N) A) -> (S) { S +=! A(i) }")
    assert m["stats"].name == "stats" and m.stats is m["stats"].stats
    assert tc.define(TWO).stats.name == "stats"


def test_repr() -> None:
    m = tc.define(MM)
    assert repr(m.mm) == "<tcsym kernel mm(float32(M, K) A, float32(K, N) B) -> (float32(M, N) C)>"
    assert repr(tc.define(TWO)).count("\n") == 2


# ---- what a kernel tells


def test_signature() -> None:
    s = tc.define(PAD).signature
    assert {n: str(t) for n, t in s.inputs.items()} == {"A": "float32(N)"}
    assert {n: str(t) for n, t in s.outputs.items()} == {"O": "float32(P)"}
    scalar = tc.define("def f(half a) -> (double b) { b = a }").signature
    assert [str(t) for t in (*scalar.inputs.values(), *scalar.outputs.values())] == [
        "float16",
        "float64",
    ]


def test_sizes() -> None:
    sizes = tc.define(MM, sizes={"M": 4, "N": tc.Dim(1, 8)}).sizes
    assert list(sizes) == ["M", "K", "N"] and sizes["M"] == 4 and sizes["N"] == tc.Dim(1, 8)
    assert sizes["K"] == tc.Dim() and repr(sizes) == "Sizes(M = 4; K: 0..; N: 1..8)"
    assert tc.define(PAD).sizes.free == ("P",)
    conv = tc.define("def c(float(N) X, float(K) F) -> (Y) { Y(i) +=! X(i + k) * F(k) }")
    assert conv.sizes.constraints and "N" in conv.sizes.constraints[0]


def test_output_shapes() -> None:
    m = tc.define(MM)
    want = {"C": (2, 4)}
    assert m.output_shapes(ones(2, 3), ones(3, 4)) == want
    assert m.output_shapes((2, 3), tc.Spec((3, 4))) == want
    assert m.output_shapes(M=2, K=3, N=4) == want
    assert m.output_shapes(B=(3, 4), A=(2, 3)) == want
    assert tc.define(PAD).output_shapes((3,), P=7) == {"O": (7,)}
    for bad in (((2, 3), (4, 5)), ((2, 3),), ((2,), (3, 4))):
        with pytest.raises(tc.TCError):
            m.output_shapes(*bad)
    with pytest.raises(tc.TCTypeError):
        m.output_shapes(tc.Spec((2, 3), "double"), (3, 4))
    with pytest.raises(tc.OptionError):
        tc.Spec((2,), "floaty")


def test_explain() -> None:
    k = tc.define(MM).mm
    for stage in [
        "syntax",
        "program",
        "ranges",
        "scop",
        "dependences",
        "schedule",
        "loops",
        "plan",
        "mapped",
    ]:
        assert k.explain(stage).strip()
    assert "bind" in k.explain("options") and "no variant" in k.explain("variants")
    assert k.explain("loops", K=3) == k.explain("loops")
    for stage in ("cuda", "ptx"):
        with pytest.raises(tc.TargetError):
            k.explain(stage)
    for unknown in ("thoughts", "promoted"):
        with pytest.raises(tc.OptionError, match="stages are syntax, program"):
            k.explain(unknown)
    with pytest.raises(tc.SizeError):
        k.explain("loops", Q=3)


def test_explain_without_a_stage_says_what_serves() -> None:
    k = tc.define(MM).mm
    assert k.explain() == k.explain("variants")
    text = k.explain(M=2, K=3, N=4)
    assert text == k.explain("variants", M=2, K=3, N=4)
    assert "symbolic, all sizes" in text and "options defaults" in text
    with pytest.raises(tc.SizeError, match="`Q`"):
        k.explain(Q=3)


# ---- what define takes


def test_define_reads_a_path(tmp_path: Path) -> None:
    path = tmp_path / "mm.tc"
    path.write_text(f"# Übung\n{MM}", encoding="utf-8")
    assert list(tc.define(path)) == ["mm"]
    path.write_text("def f(float(N) x) -> (y) { y(i) = z(i) }")
    with pytest.raises(tc.TCNameError) as error:
        tc.define(path)
    assert str(error.value).startswith(f"{path}:1:")
    with pytest.raises(tc.TCNameError) as error:
        tc.define(path, filename="layer")
    assert str(error.value).startswith("layer:1:")


def test_define_says_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(tc.OptionError, match=r"cannot read `.*none\.tc`: No such file"):
        tc.define(tmp_path / "none.tc")
    (tmp_path / "latin.tc").write_bytes(b"# \xfc")
    with pytest.raises(tc.OptionError, match="not UTF-8"):
        tc.define(tmp_path / "latin.tc")
    wrong: Any
    for wrong, hint in ((MM.encode(), "`source.decode()`"), (None, ""), (3, "")):
        with pytest.raises(tc.TCTypeError, match="expected the text of defs or a path") as error:
            tc.define(wrong)
        assert hint in error.value.hint


def test_ranges_bound_sizes() -> None:
    k = tc.define(MM, sizes={"M": range(1, 129), "K": range(16, 65, 16)}).mm
    assert k.sizes["M"] == tc.Dim(1, 128) and k.sizes["K"] == tc.Dim(16, 64, multiple_of=16)
    assert k(np.ones((2, 16), F32), np.ones((16, 3), F32)).tolist() == [[16] * 3] * 2
    for m, depth in ((0, 16), (129, 16), (2, 80), (2, 24)):
        with pytest.raises(tc.SizeError):
            k(np.ones((m, depth), F32), np.ones((depth, 3), F32))
    assert pickle.loads(pickle.dumps(k)).sizes["M"] == tc.Dim(1, 128)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (range(5, 5), "has a size in it"),
        (range(9, 1, -1), "goes up"),
        (range(-3, 4), "goes up"),
        (range(1, 129, 2), r"steps of 2 has to begin at a multiple(?s:.*)`range\(2, 129, 2\)`"),
        ("1:9", "an integer >= 0, a range or a tcsym.Dim"),
    ],
)
def test_ranges_that_no_dim_is_like(given: Any, words: str) -> None:
    with pytest.raises(tc.SizeError, match=words):
        tc.define(MM, sizes={"M": given})


def test_define_says_all_that_it_takes() -> None:
    text = inspect.getdoc(tc.define) or ""  # from 3.13 on Python takes the indents away itself
    assert all(f"\n{name}: " in text for name in inspect.signature(tc.define).parameters)
    assert all(f'"{name}"' in text for name in ("auto", "symbolic", "specialize", "bucket", "pad"))
    targets = ("cpu", "cpu:avx512bf16", "cpu:avx512", "cpu:avx2", "cpu:novector")
    for name in targets:
        assert f'"{name}"' in text and tc.define(MM, target=name)
    for name in set(re.findall(r"\b[A-Z]\w+Error\b", text)):
        assert issubclass(getattr(tc, name), tc.TCError)


# ---- variants and stats


@pytest.mark.usefixtures("interpreted")
def test_layouts_share_few_variants() -> None:
    k = tc.define(MM, strategy="symbolic").mm
    assert k.stats.compilations == 0
    a, b = np.arange(12, dtype=F32).reshape(4, 3), np.arange(15, dtype=F32).reshape(3, 5)
    wide = np.zeros((4, 6), F32)
    wide[:, :3] = a
    ways_a = (a, wide[:, :3], np.asfortranarray(a), a[::-1][::-1], np.repeat(a, 2, 1)[:, ::2])
    ways_b = (b, np.asfortranarray(b), np.repeat(b, 2, 0)[::2])
    for _ in range(2):
        for x in ways_a:
            for y in ways_b:
                assert (k(x, y) == a @ b).all()
                assert (k(x, y, out=np.zeros((5, 4), F32).T) == a @ b).all()
    assert k.stats.compilations == 4 and len(k.stats.variants) == 4
    assert ("any", "any", "any") in [v.layouts for v in k.stats.variants]
    assert "interpreter" in k.stats.milliseconds and "compilations: 4" in str(k.stats)


@pytest.mark.usefixtures("interpreted")
def test_small_dimensions_are_dense() -> None:
    k = tc.define(MM).mm
    k(ones(4, 1)[::2], ones(1, 5))
    k(ones(4, 3)[:0], ones(3, 5))
    k(ones(9, 9)[:1, :3], ones(3, 5))
    assert {v.layouts[0] for v in k.stats.variants} == {"rows", "dense"}


@pytest.mark.usefixtures("interpreted")
def test_threads_reach_the_kernel() -> None:
    k = tc.define(MM).mm
    before = tc.get_num_threads()
    try:
        tc.set_num_threads(3)
        k(ones(2, 2), ones(2, 2))
        k(ones(2, 2), ones(2, 2), threads=np.int64(5))
    finally:
        tc.set_num_threads(before)
    (version,) = k._dispatcher.versions
    runs = version.variants.made[0].kernel.runs
    assert [threads for _, threads in runs] == [3, 5]
    for threads in (0, -1, True, np.True_, 2.0, "2"):
        with pytest.raises(tc.OptionError):
            k(ones(2, 2), ones(2, 2), threads=threads)
        with pytest.raises(tc.OptionError):
            tc.set_num_threads(threads)  # type: ignore[arg-type]


# ---- pickling


def test_modules_kernels_and_errors_pickle() -> None:
    sizes = MappingProxyType({"N": tc.Dim(1, 4)})
    m = tc.define(TWO, sizes=sizes, filename="x.tc", strategy="symbolic")
    for again in (pickle.loads(pickle.dumps(m)).f, pickle.loads(pickle.dumps(m.f)), copy.copy(m.f)):
        assert again.settings == m.f.settings and again.program == m.f.program
        with pytest.raises(tc.SizeError, match="from 1 to 4") as caught:
            again.reference(ones(5))
        error = pickle.loads(pickle.dumps(caught.value))
        assert str(error) == str(caught.value) and "x.tc:1:13" in str(error)


# ---- einsum


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("mk,kn->mn", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ii->i", [(3, 3)]),
        ("i,i->", [(3,), (3,)]),
        ("ij->ji", [(2, 3)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (1, 3, 4)]),
        (",i->i", [(), (3,)]),
        ("i,i->i", [(1,), (3,)]),
        ("mk,kl,ln->mn", [(3, 9), (9, 2), (2, 8)]),
        ("ab,bc,cd,de,ef,fa->", [(6, 6)] * 6),
        ("bq,bk,bkd->bqd", [(2, 3), (2, 4), (2, 4, 5)]),
        ("ijx,jk->k", [(4, 5, 3), (5, 6)]),
        ("...a,ab,bc->...c", [(2, 1, 5), (5, 6), (6, 7)]),
        ("ab,bc,cd->ad", [(0, 3), (3, 4), (4, 2)]),
        ("ab,bc,cd->ad", [(9, 3), (3, 0), (0, 9)]),
    ],
)
def test_einsum(spec: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape).astype(F32) for shape in shapes]
    np.testing.assert_allclose(tc.einsum(spec, *operands), np.einsum(spec, *operands), rtol=1e-5)


@pytest.mark.usefixtures("interpreted")
def test_einsum_types_scalars_and_out() -> None:
    a = np.arange(6).reshape(2, 3)
    assert tc.einsum("ij,j->i", a, np.ones(3)).dtype == np.float64
    assert tc.einsum(",i->i", 2.0, np.ones(3)).tolist() == [2, 2, 2]
    out = np.empty(2)
    assert tc.einsum("ij,j->i", a, np.ones(3), out=out) is out
    with pytest.raises(tc.TCTypeError, match="operand 1 is a list"):
        tc.einsum("i,i", a[0], [1, 2, 3])
    with pytest.raises(tc.TCTypeError, match="operand 0 has type complex128"):
        tc.einsum("i->i", np.ones(3, complex))
    with pytest.raises(tc.TCTypeError, match="subscripts"):
        tc.einsum(a, [0, 1])  # type: ignore[arg-type]
    with pytest.raises(tc.SizeError):
        tc.einsum("ij,jk", ones(2, 3), ones(4, 5))


@pytest.mark.parametrize("optimize", [True, False])
def test_einsum_of_half_operands_rounds_once(optimize: bool) -> None:
    x = np.full((8, 64), 40, np.float16)
    y, z = x.T.copy(), np.full((8, 40), 2**-10, np.float16)
    found = tc.einsum("ab,bc,cd->ad", x, y, z, optimize=optimize)
    assert found.dtype == np.float16  # between the products stands 102400, beyond float16
    np.testing.assert_array_equal(found, np.full((8, 40), 800, np.float16))


def test_einsum_has_a_kernel_for_each_order_and_not_for_each_size() -> None:
    from tcsym.api import _einsum_kernel

    rng = np.random.default_rng(0)
    before = _einsum_kernel.cache_info().misses
    for m, k, p, n in [(90, 9, 9, 9), (80, 7, 9, 8), (9, 9, 9, 90)]:
        a, b, c = (rng.standard_normal(shape) for shape in [(m, k), (k, p), (p, n)])
        np.testing.assert_allclose(tc.einsum("mk,kp,pn->mn", a, b, c), a @ b @ c, atol=1e-9)
    assert _einsum_kernel.cache_info().misses - before == 2


def test_einsum_kernel() -> None:
    k = tc.einsum_kernel("mk,kn->mn")
    assert str(k.signature.inputs["x0"]).startswith("float32(")
    k = tc.einsum_kernel("mk,kn->mn", ["double", tc.DType.FLOAT32])
    assert k.signature.outputs["O"].dtype is tc.DType.FLOAT64
    with pytest.raises(tc.OptionError):
        tc.einsum_kernel("i->i", "floaty")
    with pytest.raises(tc.TCError):
        tc.einsum_kernel("i->i", ["float", "float"])


def test_nesting_at_the_limit_compiles() -> None:
    dimension, value, extent = "N", "X(i)", 4
    for k in range(90):
        extent = min(extent // 2 * 3, 4 + k)
        dimension = f"min({dimension}/2*3, N+{k})"
        value = f"max({value}, {k}.0)"
    source = f"def f(float(N) X) -> (float({dimension}) O) {{ O(i) = i < N ? X(i) : 0.0 }}"
    assert tc.define(source)(np.ones(4, np.float32)).shape == (extent,)
    deep = f"def f(float(N) X) -> (O) {{ O(i) = {value} }}"
    assert (tc.define(deep)(np.ones(3, np.float32)) == 89).all()


@pytest.mark.parametrize(
    "left, right", [("(1.5 + ", ")"), ("exp(", ")"), ("X(i) < 0.0 ? 2.5 : ", "")]
)
def test_nesting_at_the_limit_compiles_at_the_usual_recursion_limit(left: str, right: str) -> None:
    text = f"def f(float(N) X) -> (O) {{ O(i) = {left * 198}X(i){right * 198} }}"
    x, before = np.zeros(3, np.float32), sys.getrecursionlimit()
    sys.setrecursionlimit(1000 + len(inspect.stack(0)))
    try:
        f = tc.define(text).f
        np.testing.assert_array_equal(f(x), f.reference(x))
    finally:
        sys.setrecursionlimit(before)


def test_what_the_recursion_limit_does_not_allow_is_an_error_that_says_so() -> None:
    text = f"def f(float(N) X) -> (O) {{ O(i) = {'tanh(' * 198}X(i){')' * 198} }}"
    before, low = sys.getrecursionlimit(), 120 + len(inspect.stack(0))
    sys.setrecursionlimit(low)
    try:
        with pytest.raises(tc.TCSyntaxError, match=f"recursion limit, which is {low}") as caught:
            tc.define(text).f(np.ones(3, np.float32))
        assert sys.getrecursionlimit() == low
    finally:
        sys.setrecursionlimit(before)
    assert "sys.setrecursionlimit" in caught.value.hint


@pytest.mark.thinned(2)
@pytest.mark.parametrize("operator", ["+", "*"])
def test_long_expressions_at_the_limit_compile(operator: str) -> None:
    text = f"def f(float(N) X) -> (O) {{ O(i) = {operator.join(['X(i)'] * 1001)} }}"
    f, again = tc.define(text).f, tc.define(text, strategy="symbolic").f
    assert f.program == again.program and hash(f.program) == hash(again.program)
    x = np.ones(3, np.float32)
    expected = x * 1001 if operator == "+" else x
    assert (f.reference(x) == expected).all()
    try:
        assert (f(x) == expected).all()
    except tc.TCSyntaxError as error:  # early releases of 3.12 follow trees of 500 levels or so
        assert sys.version_info[:2] == (3, 12) and "too deep" in error.message
    assert repr(f.program) and f.explain("program") and f.explain("syntax").count("X(i)") >= 1001
    with pytest.raises(tc.TCSyntaxError, match="more than 1000 operators"):
        tc.define(text.replace(" }", f"{operator}X(i) }}"))


def test_fallbacks_are_counted_and_harmless() -> None:
    source = """def f(float(N,D) X) -> (Y) {
  m(i) max=! X(i,j)
  Y(i,j) = X(i,j) - m(i)
}"""
    hurried = tc.define(source, options=tc.Options(max_operations=1))
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert (hurried(X) == X - X.max(1, keepdims=True)).all()
    assert len(hurried.stats.fallbacks) == 1
    assert "order of the text" in str(hurried.stats)
    assert "order of the text" in hurried.explain("variants")
    unhurried = tc.define(source)
    unhurried(X)
    assert unhurried.stats.fallbacks == ()


def test_the_cause_is_reported_not_its_consequence() -> None:
    source = "def f(float(N) A, int64(N) P) -> (O) { O(i) = A(-P(i)) where i in 0:N }"
    P = np.array([0, -(2**63), 0])
    for call in (tc.define(source), tc.define(source).reference):
        with pytest.raises(tc.TCError) as caught:
            call(np.zeros(3, np.float32), P)
        assert caught.value.kind == "size"
