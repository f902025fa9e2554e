"""Direct calls: no Python code on the way, and nothing that Python code could see changes."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime import direct
from tcsym.runtime.background import settle
from tcsym.runtime.direct import Direct, call_directly, objects_are_as_expected
from tests.entered import python_frames

ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
A = np.arange(5, dtype=np.float32)


class Taking(Direct):
    def __init__(self, entry: Any = None) -> None:
        if entry is not None:
            self._entry = entry

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "Python", args, kwargs


def taken(*args: Any, **kwargs: Any) -> Any:
    return "entry", args, kwargs


@pytest.fixture(scope="module", autouse=True)
def made_direct() -> None:
    call_directly()


@pytest.fixture(scope="module")
def module() -> tc.Module:
    made = tc.define(ADD)
    made(A, A)
    made.compile(A, A)
    settle()
    return made


def test_objects_are_as_expected_here() -> None:
    assert objects_are_as_expected()


def test_a_call_goes_to_the_entry_with_its_arguments() -> None:
    assert Taking(taken)() == ("entry", (), {})
    assert Taking(taken)(1, 2) == ("entry", (1, 2), {})
    assert Taking(taken)(1, x=2, y=3) == ("entry", (1,), {"x": 2, "y": 3})
    assert Taking(taken)(*[1, 2], x=3) == ("entry", (1, 2), {"x": 3})
    assert Taking(Taking(Taking(taken)))(1) == ("entry", (1,), {})


def test_without_an_entry_it_is_the_method() -> None:
    assert Taking()(1, x=2) == ("Python", (1,), {"x": 2})
    assert Taking(Taking())(1) == ("Python", (1,), {})


def test_calls_by_name_and_of_subclasses_are_pythons_own() -> None:
    class Inherits(Taking): ...

    class Overrides(Taking):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return "over"

    assert Taking(taken).__call__(1)[0] == Taking.__call__(Taking(taken), 1)[0] == "Python"
    assert Inherits(taken)(1)[0] == "Python"
    assert Overrides(taken)(1) == "over"


def test_an_assigned_method_wins() -> None:
    class Changed(Direct):
        def __call__(self) -> str:
            return "old"

    call_directly()
    x = Changed()
    x._entry = lambda: "entry"
    assert x() == "entry"
    Changed.__call__ = lambda self: "new"  # type: ignore[method-assign]
    assert x() == "new"
    call_directly()
    assert x() == "new"


def test_errors_come_through() -> None:
    def fail() -> None:
        raise ValueError("from the entry")

    with pytest.raises(ValueError, match="from the entry"):
        Taking(fail)()
    with pytest.raises(TypeError, match="not callable"):
        Taking(3)()
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        Taking(fail)(x=1)


def test_endless_recursion_is_an_error() -> None:
    x = Taking()
    x._entry = lambda: x()
    with pytest.raises(RecursionError):
        x()


def test_an_entry_that_replaces_itself_lives_until_it_returns() -> None:
    x = Taking()

    class Once:
        def __call__(self) -> str:
            x._entry = taken
            return "once"

    x._entry = Once()
    assert x() == "once"
    assert x()[0] == "entry"


def test_references_stay_right() -> None:
    class Entry:
        def __call__(self, *args: Any, **kwargs: Any) -> None: ...

    entry, argument = Entry(), object()
    x = Taking(entry)
    watched = (x, entry, argument, Taking)
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(1000):
        x(argument, k=argument)
    assert [sys.getrefcount(o) for o in watched] == before


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_calls_on(module: tc.Module) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if (module(A, A) == A + A).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_where_objects_look_different_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "objects_are_as_expected", lambda: False)

    class Later(Direct):
        def __call__(self) -> str:
            return "Python"

    call_directly()
    x = Later()
    x._entry = taken
    assert x() == "Python"
