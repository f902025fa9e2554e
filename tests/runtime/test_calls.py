# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels, modules and executables: all enter native code, and look as Python's do."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import threading

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.background import settle
from tcsym.runtime.native import HAS_ENTRIES
from tests.entered import python_frames

ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
A = np.arange(5, dtype=np.float32)


@pytest.fixture(scope="module")
def module() -> tc.Module:
    made = tc.define(ADD)
    made(A, A)
    made.compile(A, A)
    settle()
    return made


def test_calls_enter_native_code_here() -> None:
    assert HAS_ENTRIES


def test_no_python_code_runs_in_a_call(module: tc.Module) -> None:
    kernel, executable = module.add, module.add.compile(A, A)
    executable(A, A)
    settle()
    for function in (module, kernel, executable):
        assert python_frames(lambda f=function: f(A, A)) == []


def test_documentation_signatures_and_copies_are_as_ever(module: tc.Module) -> None:
    kernel = module.add
    assert list(inspect.signature(kernel).parameters) == [
        "args",
        "out",
        "sizes",
        "threads",
        "kwargs",
    ]
    assert "in declaration order" in (type(kernel).__call__.__doc__ or "")
    for again in (pickle.loads(pickle.dumps(kernel)), copy.copy(kernel), copy.deepcopy(module)):
        assert again(A, A).tolist() == (A + A).tolist()
    assert module.__call__(A, B=A).tolist() == kernel.__call__(A, A, out=None).tolist()


def test_sixteen_threads_at_once(module: tc.Module) -> None:
    wrong: list[int] = []
    start = threading.Barrier(16)

    def work(k: int) -> None:
        x = np.full(k + 1, k, np.float32)
        start.wait()
        for _ in range(500):
            if not (module(x, x) == x + x).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_calls_on(module: tc.Module) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if (module(A, A) == A + A).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
