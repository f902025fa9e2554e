# SPDX-License-Identifier: Apache-2.0
"""Without the native part: the same results and errors, by Python, on one thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = "import sys; sys.modules['tcsym.runtime._native'] = None\n"
CALLS = """
import inspect, pickle
import numpy as np, tcsym as tc
from tcsym.runtime.native import HAS_ENTRIES
assert not HAS_ENTRIES
m = tc.define('''
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }
def take(float(N) A, int32(M) I) -> (O, S) { O(i) = A(I(i))  S +=! A(i) }
''', strategy=STRATEGY)
tc.set_num_threads(4)
rng = np.random.default_rng(0)
for n in (3, 200, 5):
    a, b = rng.random((n, 70), np.float32), rng.random((70, n), np.float32)
    out = np.empty((n, n), np.float32)
    for _ in range(3):
        np.testing.assert_allclose(m.mm(a, B=b, threads=2), a @ b, rtol=1e-4)
        assert m.mm(a, b, out=out) is out
    np.testing.assert_allclose(m.mm(b.T, a.T), b.T @ a.T, rtol=1e-4)
assert m.pad(a[0], sizes={"P": 80})[69:].tolist() == [a[0, 69], *[0.0] * 10]
try:
    m.take(a[0], np.array([70], np.int32))
except tc.TCError as error:
    assert error.kind == "bounds", error
else:
    raise AssertionError
large = tc.define("def f(float(N) A) -> (O) { O(i) = A(i) + 1.0 }")
assert (large(np.ones(2**21, np.float32)) == 2).all()
assert tc.get_result_memory().blocks == 0
assert "threads" in inspect.signature(m.mm).parameters
assert pickle.loads(pickle.dumps(m.mm)).name == "mm"
session = m.mm.plan().session()
a = rng.random((4, 3), np.float32)
np.testing.assert_allclose(session(a, a.T), m.mm(a, a.T), 1e-5)
last = tc.define("def last(float(N) X, float(N) S) -> (O) { O(i) = X(i) + 2.0 * S(i) }")
sums = last.plan().session(state={"S": "O"})
assert [sums(X=np.ones(1, np.float32))[0] for _ in range(3)] == [1, 3, 7]
print(m.mm.stats.calls if hasattr(m.mm.stats, "calls") else "good")
"""


def run(code: str, cache: Path) -> str:
    import os

    environment = {**os.environ, "TCSYM_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", BLOCKED + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thinned(5)
@pytest.mark.parametrize("strategy", ["symbolic", "auto", "specialize"])
def test_every_call_is_served(strategy: str, tmp_path: Path) -> None:
    code = CALLS.replace("STRATEGY", repr(strategy))
    assert run(code, tmp_path) == run(code, tmp_path)  # again, from the cache


def test_doctor_says_so(tmp_path: Path) -> None:
    code = "from tcsym.cli.main import main\nmain(['doctor'], standalone_mode=False)"
    assert "not built" in run(code, tmp_path)
