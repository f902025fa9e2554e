# SPDX-License-Identifier: Apache-2.0
"""Kernels whose code is made as calls need it: what is made when, and what happens in between."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym import compiler
from tcsym.compiler import Unfinished, analyse, begin_program
from tcsym.ir.compiled import SYMBOL, Compiled
from tcsym.options import Options
from tcsym.runtime import growing as growing_module
from tcsym.runtime.background import Turns, settle
from tcsym.runtime.growing import GrowingKernel
from tcsym.runtime.jit import load
from tcsym.target.names import resolve_target

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIZES = [(64, 40, 64), (1, 40, 64), (3, 300, 2), (64, 3, 64), (0, 5, 5), (7, 0, 3)]


@pytest.fixture(autouse=True)
def _all_kernels_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MOST_LOOPS_AT_ONCE", 0)


def begun(text: str = MM) -> Unfinished:
    (program,) = analyse(text).values()
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    given = program, resolve_target("cpu"), Options(), {}, layouts
    return begin_program(*given)  # type: ignore[arg-type]


class Growing:
    """A matrix product that is told nothing of work beside its calls: `grow` does it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.beside: list[Callable[[], object]] = []
        monkeypatch.setattr(growing_module, "beside", self.beside.append)
        self.told: list[tuple[Compiled, bool]] = []
        self.unfinished = begun()
        self.kernel = GrowingKernel(self.unfinished, load, lambda *told: self.told.append(told))

    def check(self, m: int, k: int, n: int) -> None:
        rng = np.random.default_rng(m)
        a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
        c = np.full((m, n), np.nan, np.float32)
        arrays, sizes = {"A": a, "B": b, "C": c}, {"M": m, "K": k, "N": n}
        pointers = [arrays[name].ctypes.data for name in self.kernel.compiled.arguments]
        values = [sizes[name] for name in self.kernel.compiled.sizes]
        assert self.kernel.run(pointers, values, 2) == 0
        np.testing.assert_allclose(c, a @ b, rtol=1e-4)


@pytest.fixture
def product(monkeypatch: pytest.MonkeyPatch) -> Growing:
    return Growing(monkeypatch)


def test_a_call_makes_what_it_launches(product: Growing) -> None:
    every = set(product.unfinished.missing())
    product.check(64, 40, 64)
    left = set(product.unfinished.missing())
    assert SYMBOL not in left
    assert len(left) >= len(every) - 2 > 0
    product.check(64, 40, 64)
    product.check(64, 41, 64)  # the same version
    assert set(product.unfinished.missing()) == left
    assert len(product.told) == 1
    product.check(3, 300, 2)
    assert set(product.unfinished.missing()) < left


def test_a_call_loads_what_was_made_beside(
    product: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    product.check(64, 40, 64)
    sizes = [{"M": 3, "K": 300, "N": 2}[n] for n in product.kernel.compiled.sizes]
    missing = frozenset(product.unfinished.missing())
    product.unfinished.make(sorted(product.unfinished.needed(sizes) & missing))
    monkeypatch.setattr(product.kernel, "whole", lambda: pytest.fail("a task was missing"))
    product.check(3, 300, 2)


def test_the_rest_is_made_beside(product: Growing) -> None:
    product.check(64, 40, 64)
    first = product.told[0][0]
    for work in product.beside:
        work()
    assert product.unfinished.missing() == ()
    at_once = begun()
    at_once.make(at_once.missing())
    whole = at_once.compiled()
    last, is_all = product.told[-1]
    assert is_all and not product.told[0][1]
    assert last.object_code == whole.object_code == product.kernel.compiled.object_code
    assert len(first.object_code) < len(whole.object_code)
    assert last.manifest() == whole.manifest()
    assert "rest" in dict(last.milliseconds)
    for sizes in SIZES:
        product.check(*sizes)
    assert product.kernel.whole() is product.kernel.grown()


def test_the_first_call_of_a_small_kernel_makes_all(
    product: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "MOST_LOOPS_AT_ONCE", 400)
    unfinished = begun()
    told = list[bool]()
    product.kernel = GrowingKernel(unfinished, load, lambda _, is_all: told.append(is_all))
    product.check(64, 40, 64)
    assert unfinished.missing() == ()
    product.check(1, 40, 64)
    for work in product.beside:
        work()
    assert told == [True]


def test_the_main_module_is_written_first_and_functions_behind_their_first_caller() -> None:
    text = """def f(float(B,N) I, float(O,N) W, float(P,O) V) -> (X, Y) {
      X(b,o) +=! I(b,n) * W(o,n)
      Y(b,p) +=! X(b,o) * V(p,o)
    }"""
    code = begun(text)._code
    tasks = [name for name in code.missing() if name.startswith("tcsym_task")]
    written = code.write([*tasks, SYMBOL], lambda _: None)
    assert written[0] == SYMBOL
    functions = [name for name in written if name not in (*tasks, SYMBOL)]
    assert functions
    for name in functions:
        callers = [x for x in written[: written.index(name)] if x in tasks]
        assert name in code._emission.calls(callers[-1])


def test_whole_needs_no_call(product: Growing) -> None:
    product.kernel.whole()
    assert [is_all for _, is_all in product.told] == [True]
    for sizes in SIZES:
        product.check(*sizes)


@pytest.mark.parametrize("sizes", SIZES)
def test_a_task_that_was_not_foreseen_is_made(
    product: Growing, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(product.unfinished, "needed", lambda _: frozenset({SYMBOL}), raising=False)
    product.check(*sizes)


def test_calls_in_threads(product: Growing) -> None:
    errors: list[BaseException] = []

    def call(sizes: tuple[int, int, int]) -> None:
        try:
            for _ in range(3):
                product.check(*sizes)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=call, args=(s,)) for s in SIZES]
    threads.append(threading.Thread(target=product.kernel.grown))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_call_can_be_made_again(
    product: Growing, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Control-C may come while a task is written: its module is then written anew."""
    from tcsym.codegen.cpu import parallel, vector_memory

    n_left = [after]

    def interrupted(function: Any) -> Any:
        def run(*given: Any) -> Any:
            n_left[0] -= 1
            if n_left[0] == 0:
                raise KeyboardInterrupt
            return function(*given)

        return run

    for module, name in (
        (parallel, "_body"),
        (parallel, "_task"),
        (vector_memory, "end_streams"),
    ):
        monkeypatch.setattr(module, name, interrupted(getattr(module, name)))
    with pytest.raises(KeyboardInterrupt):
        product.check(64, 40, 64)
    for sizes in SIZES:
        product.check(*sizes)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_waits_for_what_is_being_assembled(
    product: Growing, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """It is not assembled twice; if that fails, the call does it."""
    product.check(64, 40, 64)
    unfinished, (name, *_) = product.unfinished, product.unfinished.missing()
    assemble, make = unfinished.assembled, unfinished.make
    begun, go, made = threading.Event(), threading.Event(), list[str]()

    def slowly(texts: Any) -> Any:
        begun.set()
        go.wait()
        if fails:
            raise MemoryError
        return assemble(texts)

    def noting(names: Any) -> None:
        made.extend(names)
        make(names)

    for attribute, new in (
        ("assembled", slowly),
        ("make", noting),
        ("needed", lambda _: frozenset({name})),
    ):
        monkeypatch.setattr(unfinished, attribute, new, raising=False)
    background = threading.Thread(target=lambda: _quietly(product.kernel.grown))
    background.start()
    begun.wait()
    caller = threading.Thread(target=product.check, args=(65, 40, 64))
    caller.start()
    caller.join(0.05)
    assert caller.is_alive()
    go.set()
    caller.join()
    background.join()
    assert made == [name] * fails
    assert name not in unfinished.missing()


def _quietly(work: Callable[[], object]) -> None:
    with contextlib.suppress(MemoryError):
        work()


def test_errors_are_raised_by_each_call(product: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr("tcsym.codegen.parts.PartialCode.write", refuse)
        for _ in range(2):
            with pytest.raises(MemoryError, match="no room"):
                product.check(64, 40, 64)
    product.check(64, 40, 64)


def test_code_that_comes_while_a_call_writes_the_same_is_no_surprise() -> None:
    """LLVM's work beside the calls ends when it likes: what a call wrote is what it adds."""
    code = begun()._code
    names, texts = code.missing(), list[str]()

    def ready(text: str) -> None:
        texts.append(text)
        code.add(names, [b""] * len(names))

    written = code.write(names, ready)
    assert len(written) == len(texts) > 1


def test_faults_of_parts_keep_their_numbers() -> None:
    """Numbered in the order in which parts are written: what is known of them stays true."""
    text = """def f(float(M,K) A, int32(N) I, int32(N) J) -> (B, C) {
      B(n,k) = A(I(n),k) where k in 0:K, n in 0:N
      C(n,k) = A(J(n),k) where k in 0:K, n in 0:N
    }"""
    kernel = tcsym.define(text, strategy="symbolic").f
    a, good = np.ones((3, 40), np.float32), np.zeros(5, np.int32)
    bad = np.full(5, 7, np.int32)
    for first, second, name in ((good, bad, "J"), (bad, good, "I")):
        with pytest.raises(tcsym.BoundsError) as caught:
            kernel(a, first, second)
        assert f"{name}(n)" in str(caught.value).split("^")[0]
    settle()
    for first, second, name in ((good, bad, "J"), (bad, good, "I")):
        with pytest.raises(tcsym.BoundsError) as again:
            kernel(a, first, second)
        assert f"{name}(n)" in str(again.value).split("^")[0]


def test_growth_is_one_compilation() -> None:
    kernel = tcsym.define(MM, strategy="symbolic").mm
    for m, k, n in SIZES:
        kernel(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
    settle()
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1
    assert len(kernel.stats.variants) == 1


# ---- processes

FIRST_CALL = f"""
import os, sys
import numpy as np
import tcsym
from tcsym import compiler
compiler.MOST_LOOPS_AT_ONCE = 0
kernel = tcsym.define({MM!r}, strategy="symbolic").mm
assert (kernel(np.ones((5, 6), np.float32), np.ones((6, 7), np.float32)) == 6).all()
"""


def run(directory: Path, code: str) -> str:
    environment = {**os.environ, "TCSYM_CACHE_DIR": str(directory), "TCSYM_VERIFY": "0"}
    command = [sys.executable, "-c", FIRST_CALL + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kept(directory: Path) -> list[str]:
    from tcsym.runtime.cache import CodeCache

    return [e.manifest.get("name", "") for e in CodeCache(str(directory / "code")).entries()]


def test_a_killed_process_keeps_all_or_nothing(tmp_path: Path) -> None:
    run(tmp_path, "os._exit(0)")  # as a kill: nobody is waited for
    assert "mm" not in kept(tmp_path)
    warm = "print(kernel.stats.compilations, 'tcsym.target.llvm' in sys.modules)"
    assert run(tmp_path, warm).split()[0] == "1"
    assert "mm" in kept(tmp_path)
    assert run(tmp_path, warm) == "0 False\n"


def test_a_fork_after_the_first_call(tmp_path: Path) -> None:
    code = """
child = os.fork()
for m, k, n in ((64, 40, 64), (3, 300, 2), (64, 3, 64)):
    made = kernel(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
    assert (made == k).all()
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run(tmp_path, code)


# ---- turns


def test_callers_go_first() -> None:
    turns, order = Turns(), list[str]()
    has_begun, go = threading.Event(), threading.Event()

    def background() -> None:
        for k in range(2):
            with turns.beside():
                has_begun.set()
                go.wait()
                order.append(f"beside {k}")

    def caller() -> None:
        with turns.at_once():
            order.append("caller")

    threads = [threading.Thread(target=background), threading.Thread(target=caller)]
    threads[0].start()
    has_begun.wait()
    threads[1].start()
    while not turns._n_callers:
        pass
    go.set()
    for t in threads:
        t.join()
    assert order == ["beside 0", "caller", "beside 1"]


def test_a_turn_ends_with_an_error() -> None:
    turns = Turns()
    for turn in (turns.at_once, turns.beside, turns.at_once):
        with pytest.raises(KeyError), turn():
            raise KeyError
