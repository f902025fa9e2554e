# SPDX-License-Identifier: Apache-2.0
"""Kernels as functions that JAX compiles, differentiates and batches."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tests.hosts import host

jax = host("jax")
export = pytest.importorskip("jax.export")
if shutil.which("cc") is None or shutil.which("objcopy") is None:
    pytest.skip("there is no C compiler", allow_module_level=True)

from tcsym.jax import kernels, operator  # noqa: E402  # which needs jax

module = tc.define("""
def mv(float(M,K) A, float(K) B) -> (C) { C(m) +=! tanh(A(m,k)) * B(k) }
def cube(float(N) X) -> (Y) { Y(n) = X(n) * X(n) * X(n) }
def pick(float(N) X, int32(M) at) -> (Y) { Y(m) = X(at(m)) }
def spread(float(N) X, float a) -> (float(M,N) Y, float(N) Z) {
    Y(m,n) = a * X(n)
    Z(n) = X(n) * X(n)
}
def wide(double(N) X) -> (Y) { Y(n) = 2 * X(n) }
""")


def arrays(m: int = 2, k: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return tuple(jax.numpy.asarray(rng.random(s, np.float32)) for s in ((m, k), (k,)))  # type: ignore[return-value]


def same_in_jax(a: Any, b: Any) -> Any:
    return jax.numpy.tanh(a) @ b


def close(have: Any, want: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), have, want)


def test_jit_at_every_size_with_one_library() -> None:
    mv = operator(module.mv)
    run = jax.jit(lambda a, b: mv(a, B=b) + 1)
    close(run(*arrays()), same_in_jax(*arrays()) + 1)
    known = kernels()
    for sizes in ((1, 1), (0, 3), (17, 33)):
        close(run(*arrays(*sizes)), same_in_jax(*arrays(*sizes)) + 1)
    assert kernels() == known
    close(mv(*arrays()), same_in_jax(*arrays()))


def test_gradients_of_any_order() -> None:
    def loss(f: Any) -> Any:
        return lambda a, b: jax.numpy.sum(f(a, b) ** 2)

    mv, given = operator(module.mv), arrays()
    have, want = (jax.jit(jax.grad(loss(f), argnums=(0, 1))) for f in (mv, same_in_jax))
    close(have(*given), want(*given))
    cube, x = operator(module.cube), jax.numpy.arange(3.0)
    second = jax.grad(lambda x: jax.grad(lambda x: cube(x).sum())(x).sum())
    close(second(x), 6 * x)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: lambda a, b: jax.jit(lambda a, b: jax.jvp(f, (a, b), (a + 1, b)))(a, b),
        lambda f: lambda a, b: jax.jvp(lambda a: f(a, b), (a,), (a + 1,)),
        lambda f: jax.jit(jax.hessian(lambda a, b: (f(a, b) ** 2).sum(), (0, 1))),
        lambda f: jax.jacrev(jax.jacfwd(f)),
        lambda f: (
            lambda a, b: jax.linear_transpose(
                jax.vmap(jax.linearize(f, a, b)[1], (None, 0)), a, b[None]
            )(jax.numpy.ones((1, 2)))
        ),
        lambda f: jax.grad(lambda a, b: jax.checkpoint(f)(a, b).sum()),
        lambda f: jax.grad(
            lambda a, b: jax.lax.scan(lambda c, _: (c + f(a * c[0], b), c), b[:2], None, 3)[0].sum()
        ),
    ],
    ids=["jvp", "one direction", "hessian", "reverse", "transposed", "checkpoint", "scan"],
)
def test_linear_maps(transform: Any) -> None:
    """Forwards, backwards, and one over the other."""
    given = arrays()
    close(transform(operator(module.mv))(*given), transform(same_in_jax)(*given))


def test_tangents_where_there_is_no_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise tc.DerivativeError("no way back")

    monkeypatch.setattr("tcsym.jax.linear.backward_of", refused)
    double = operator(tc.define("def f(float(N) X) -> (Y) { Y(n) = 2 * X(n) }").f)
    x = jax.numpy.arange(3.0)
    assert jax.jvp(double, (x,), (x,))[1].tolist() == [0, 2, 4]
    with pytest.raises(tc.DerivativeError, match="no way back"):
        jax.grad(lambda x: double(x).sum())(x)


def test_exported_for_all_sizes() -> None:
    """One program, which another process loads once it has registered what it calls."""
    mv = operator(module.mv)
    m, k = export.symbolic_shape("m, k")
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((m, k), (k,))]
    checks = [export.DisabledSafetyCheck.custom_call("tcsym")]

    def loss(f: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))

    exported = export.export(loss(mv), disabled_checks=checks)(*shapes)
    for sizes in ((2, 3), (5, 4)):
        close(exported.call(*arrays(*sizes)), loss(same_in_jax)(*arrays(*sizes)))
    spread = operator(module.spread)
    rows = export.export(
        jax.jit(lambda a, b: spread(b, 2.0, sizes={"M": a.shape[0] + 1}).Y), disabled_checks=checks
    )(*shapes)
    a, b = arrays()
    close(rows.call(a, b), jax.numpy.stack([2 * b] * 3))
    with pytest.raises(tc.SizeError, match="`B` has size m on axis 0, expected k"):
        export.export(jax.jit(mv))(shapes[0], jax.ShapeDtypeStruct((m,), np.float32))


def test_exported_and_loaded_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    kernel, x = module.cube, jax.numpy.arange(3.0)
    checks = [export.DisabledSafetyCheck.custom_call("tcsym")]
    made = export.export(jax.jit(operator(kernel)), disabled_checks=checks)(x)
    (tmp_path / "program").write_bytes(made.serialize())
    (tmp_path / "kernels").write_bytes(pickle.dumps([k for k in kernels() if k.name == "cube"]))
    code = """
        import pathlib, pickle, sys, jax, jax.export, tcsym.jax
        program, kernels = (pathlib.Path(sys.argv[1], n) for n in ("program", "kernels"))
        tcsym.jax.register(*pickle.loads(kernels.read_bytes()))
        exported = jax.export.deserialize(bytearray(program.read_bytes()))
        assert exported.call(jax.numpy.arange(3.0)).tolist() == [0, 1, 8]
    """
    subprocess.run([sys.executable, "-c", dedent(code), str(tmp_path)], check=True)


def test_batches() -> None:
    mv, (a, b) = operator(module.mv), arrays()
    many = jax.numpy.stack([a, 2 * a, 3 * a], axis=1)  # the batch is in the middle
    for transform in (
        lambda f: jax.jit(jax.vmap(f, in_axes=(1, None))),
        lambda f: jax.vmap(jax.grad(lambda a, b: f(a, b).sum()), in_axes=(1, None)),
        lambda f: jax.grad(lambda a, b: jax.vmap(f, (1, None))(a, b).sum(), argnums=(0, 1)),
    ):
        close(transform(mv)(many, b), transform(same_in_jax)(many, b))


def test_several_results_numbers_and_free_sizes() -> None:
    x = jax.numpy.arange(3.0)
    spread = operator(module.spread)
    made = jax.jit(lambda x: spread(x, 2.0, sizes={"M": 2}))(x)
    close(tuple(made), (jax.numpy.stack([2 * x, 2 * x]), x * x))
    close(jax.grad(lambda x: spread(x, 2.0, sizes={"M": 2}).Z.sum())(x), 2 * x)
    close(jax.vmap(lambda a: spread(x, a, sizes={"M": 1}).Y)(x), x[:, None, None] * x)


def test_integers_have_no_gradient() -> None:
    pick, at = operator(module.pick), jax.numpy.asarray([2, 0, 2], "int32")
    close(jax.grad(lambda x: pick(x, at).sum())(jax.numpy.ones(3)), np.float32([1, 0, 2]))


def test_errors() -> None:
    pick, mv = operator(module.pick), operator(module.mv)
    x, (a, b) = jax.numpy.ones(3), arrays()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"OUT_OF_RANGE: pick: .*`X`"):
        jax.jit(pick)(x, jax.numpy.asarray([3], "int32")).block_until_ready()
    with pytest.raises(tc.SizeError, match="`B` has size 2 on axis 0"):
        jax.jit(mv)(a, b[:2])
    with pytest.raises(tc.TCTypeError, match="`A` has type int32"):
        jax.jit(mv)(a.astype("int32"), b)
    with pytest.raises(tc.TCTypeError, match="no float64 now for `X`"):
        operator(module.wide)(np.ones(3))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    kernel = tc.define("def other(float(N) X) -> (Y) { Y(n) = 3 * X(n) }").other
    with pytest.raises(tc.TargetError, match="`no-such-compiler` was not found"):
        operator(kernel)(jax.numpy.ones(3))


def test_what_is_updated_is_a_result() -> None:
    text = "def f(inout float(N) Y, float(N) X) -> (s) { Y(n) += X(n) * X(n)  s +=! Y(n) }"
    f = operator(tc.define(text, target="cpu:novector").f)
    Y, X = jax.numpy.ones(3), jax.numpy.arange(3.0)
    result = jax.jit(f)(Y, X)
    assert result._fields == ("s", "Y_new")
    assert (float(result.s), result.Y_new.tolist()) == (8.0, [1, 2, 5])
    assert jax.grad(lambda y, x: f(y, x).s, 1)(Y, X).tolist() == [0, 2, 4]


def test_what_is_saved_for_gradients_has_gradients() -> None:
    text = "def f(float(N) X) -> (Y) { e(i) = exp(X(i)) s +=! e(i) Y(i) = e(i) / s }"
    kernel = tc.define(text).f
    assert [t.name for t in kernel.saving().program.outputs] == ["Y", "s"]
    x = jax.numpy.arange(3.0)

    def loss(f: Any) -> Any:
        return lambda x: (f(x) ** 3).sum()

    def second(f: Any) -> Any:
        return jax.grad(lambda x: (jax.grad(loss(f))(x) ** 2).sum())

    for of in (lambda f: jax.grad(loss(f)), second):
        close(of(operator(kernel))(x), of(jax.nn.softmax)(x))
