# SPDX-License-Identifier: Apache-2.0
"""Numbers for 0-d parameters in graphs of torch: inputs of them, with the errors of calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tcsym
from tests.hosts import host

torch = host("torch")
if not hasattr(torch.library, "register_vmap"):
    pytest.skip("torch is older than 2.5", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

SCALE = tcsym.define("def scale(float(N) X, float a, int32 n) -> (Y) { Y(i) = a * X(i) + n }").scale
MANY = tcsym.define("""
def many(float(N) X, float a, int32 n, half h, bool q, int64 w, double d) -> (Y, V) {
  Y(i) = q ? a * X(i) + n + h : 0.0 where i in 0:N
  V(i) = X(i) * w * d
}""")
FLOATS = (0.5, 0.25, 1.5, 2.5, -3.0, 1e-3, 7.0, 8.0, 9.5, 11.0, -2.0, 1e9)
INTEGERS = (2, 3, -4, 5, 0, 1, 6, 7, 8, 9, 10, -11)
X = torch.arange(5.0)


def graphs_of(function: Any, dynamic: bool | None) -> list[int]:
    """How many there are after calls with many floats, and then with many integers."""
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    run = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
    counts = []
    for numbers in ([(a, 2) for a in FLOATS], [(0.5, n) for n in INTEGERS]):
        for a, n in numbers:
            torch.testing.assert_close(run(X, a, n), a * X + n)
        counts.append(len(graphs))
    return counts


@pytest.mark.parametrize("dynamic", [None, True])
def test_there_are_as_many_graphs_as_of_torchs_own_product(dynamic: bool | None) -> None:
    own = graphs_of(lambda x, a, n: a * x + n, dynamic)
    assert own[1] < len(INTEGERS)
    assert graphs_of(lambda x, a, n: SCALE(x, a, n), dynamic) == own
    assert graphs_of(lambda x, a, n: SCALE(x, n=n, a=a), dynamic) == own


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_more_numbers_than_torch_would_compile_graphs(backend: str) -> None:
    torch.compiler.reset()
    run = torch.compile(lambda x, a, n: SCALE(x, a, n), fullgraph=True, backend=backend)
    for a, n in zip(FLOATS, INTEGERS):
        torch.testing.assert_close(run(X, a, n), a * X + n)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_that_only_the_data_know(backend: str) -> None:
    torch.compiler.reset()
    run = torch.compile(
        lambda x, a, n: SCALE(x, a.item(), n.item()), fullgraph=True, backend=backend
    )
    for a, n in ((2.0, 3), (math.inf, -1), (-0.5, 2**20)):
        found = run(X, torch.tensor(a), torch.tensor(n))
        torch.testing.assert_close(found, SCALE(X, a, n), equal_nan=True)
    with pytest.raises(RuntimeError):
        run(X, torch.tensor(1.0), torch.tensor(2**40))


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_take_them(strict: bool) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, a: Any, n: Any) -> Any:
            return SCALE(x, a.item(), n.item())

    given = X, torch.tensor(2.0), torch.tensor(3)
    run = torch.export.export(Model(), given, strict=strict).module()
    torch.testing.assert_close(run(X, torch.tensor(-0.5), torch.tensor(7)), SCALE(X, -0.5, 7))
    with pytest.raises(RuntimeError):
        run(X, torch.tensor(2.0), torch.tensor(2**31))


@pytest.mark.parametrize(
    "numbers",
    [
        (1.0, 2, 1.0, True, 2, 0.1),
        (np.float32(2), np.int32(3), 1.0, np.bool_(True), 2, 3),
        (1e39, 2, 1.0, True, 2, 1e300),
        (1.0, 2**31, 1.0, True, 2, 1.0),
        (1.0, -(2**31), 65519.0, True, 2, 1.0),
        (1.0, 2, 65520.0, False, 2, 1.0),
        (math.inf, 2, -math.inf, 1, 2, math.nan),
        (math.nan, 2, math.nan, 2, 2, 1.0),
        (2**24 + 1, 1, 1, 1, 2**40, 2**53),
        (2**25, 1, 2**12, 1, 2**40, 2**60),  # held, though not all up to there are
        (3, 1, 1, 1, 2**63 - 1, 1),
        (3, 1, 1, 1, 2**63, 1),
        (3, 1.5, 1, 1, 2, 1),
        (True, True, True, True, True, True),
        (None, 1, 1, 1, 1, 1),
        ([1.0], 1, 1, 1, 1, 1),
    ],
)
def test_what_fits_is_what_fits_a_call(numbers: tuple[Any, ...]) -> None:
    torch.compiler.reset()
    run = torch.compile(lambda *given: MANY.many(*given), backend="aot_eager")
    x = torch.randn(4)
    try:
        expected = MANY.many(x, *numbers)
    except tcsym.TCError as error:
        with pytest.raises(type(error)) as caught:
            run(x, *numbers)
        assert str(caught.value) == str(error)
    else:
        torch.testing.assert_close(tuple(run(x, *numbers)), tuple(expected), equal_nan=True)


def test_zeros_keep_their_signs() -> None:
    keep = tcsym.define("def keep(float(N) X, float a) -> (Y) { Y(i) = X(i) < 9 ? a : X(i) }").keep
    torch.compiler.reset()
    run = torch.compile(lambda x, a: keep(x, a), fullgraph=True, backend="aot_eager")
    found = [bool(torch.signbit(run(X, a)[0])) for a in (1.0, -0.0, 0.0, -0.0)]
    assert found == [False, True, False, True]


def test_gradients_run_beside_them() -> None:
    torch.compiler.reset()
    run = torch.compile(lambda x, a: SCALE(x, a, 1).sum(), fullgraph=True, backend="aot_eager")
    x = X.clone().requires_grad_()
    for a in FLOATS:
        (gradient,) = torch.autograd.grad(run(x, a), x)
        torch.testing.assert_close(gradient, torch.full((5,), a))


@pytest.mark.parametrize("place", ["module", "in a module of torch", "one of two defs"])
def test_what_was_never_called_is_compiled(place: str) -> None:
    text = "def f(float(N) X, float a) -> (Y) { Y(i) = a * X(i) }"
    more = "def g(float(N) X) -> (Y) { Y(i) = X(i) }"
    run: Any = tcsym.define(text, strategy="symbolic", target="cpu:novector")
    if place == "in a module of torch":

        class Model(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, kernel: Any) -> None:
                super().__init__()
                self.kernel = kernel

            def forward(self, x: Any, a: float) -> Any:
                return self.kernel(x, a)

        run = Model(run)
    elif place == "one of two defs":
        run = tcsym.define(text + more, strategy="symbolic", target="cpu:novector")["f"]
    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(X, 2.0), 2 * X)


def test_recorded_calls_count_in_stats() -> None:
    text = "def f(float(N) X) -> (Y) { m max=! X(i)  s +=! exp(X(i)-m)  Y(i) = exp(X(i)-m) / s }"
    kernel = tcsym.define(text, strategy="symbolic", target="cpu:novector").f
    stats = kernel.stats
    recorded = X.clone().requires_grad_()
    kernel(recorded)
    assert len(kernel._counters()) == 2  # another kernel served it
    assert stats.compilations + stats.cache_hits == 1 and len(stats.variants) == 1
    kernel(recorded).sum().backward()
    kernel(X)
    assert sum(stats.dispatch.values()) == 3
    assert stats.compilations + stats.cache_hits == 2
