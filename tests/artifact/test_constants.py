# SPDX-License-Identifier: Apache-2.0
"""Constants of artifacts: files of the folder, or bound by who loads it: C, TVM's FFI, Python."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import CallError, ImmutableError, OptionError, SizeError, TargetError, TCTypeError
from tests.entered import python_frames

HERE = Path(__file__).parent
AFFINE = """def affine(float(B,K) X, float(K,N) U, float(N) v) -> (Y) {
    W(k,n) = 2 * U(k,n) + 1
    Y(i,n) +=! X(i,k) * W(k,n)
    Y(i,n) = Y(i,n) + v(n)
}"""
pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("objcopy") is None,
    reason="artifacts are linked by a C compiler",
)


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _kernel() -> Any:
    return tcsym.define(AFFINE, target="cpu:avx2").affine


def _session(given: dict[str, Any]) -> Any:
    return _kernel().plan().session(constants=given)


WEIGHTS = {"U": _random(20, 33), "v": _random(33)}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "affine"
    return Path(_kernel().export(folder, constants=WEIGHTS))


@pytest.fixture(scope="module")
def open_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open") / "affine"
    return Path(_kernel().export(folder, bounds={"N": 99}, constants=("U", "v")))


def test_results_are_the_sessions_at_all_sizes(stored: Path, open_: Path) -> None:
    assert {x.name for x in stored.iterdir()} - {x.name for x in open_.iterdir()} == {
        "affine.U.npy",
        "affine.v.npy",
    }
    session = _session(WEIGHTS)
    for loaded in (tcsym.load(stored), tcsym.load(open_, constants=WEIGHTS)):
        for b in (1, 2, 7, 64, 0, 1):
            x = _random(b, 20)
            np.testing.assert_array_equal(loaded(x), session(x))
            np.testing.assert_array_equal(loaded(x), session(x))


@pytest.mark.parametrize("weights", ["X", "w"])
def test_constants_may_be_read_under_guards(tmp_path: Path, weights: str) -> None:
    """Limits of a call are those of code that reads constants: calls are not given these."""
    text = """def causal(float(N) X, float(K) w) -> (Y) {
        Y(i) +=! i >= k ? X(i - k) * w(k) : 0.0 where i in 0:N
    }"""
    kernel, given = tcsym.define(text, target="cpu:avx2"), {"X": _random(9), "w": _random(3)}
    want = kernel.reference(**given)
    constants = {weights: given.pop(weights)}
    served = tcsym.load(kernel.export(tmp_path / "causal", constants=constants))
    np.testing.assert_allclose(served(**given), want, 1e-5, 1e-5)
    session = kernel.plan().session(constants=constants)
    np.testing.assert_allclose(session(**given), want, 1e-5, 1e-5)


@pytest.mark.parametrize("folder", ["stored", "open_"])
def test_calls_with_constants_enter_native_code(
    folder: str, request: pytest.FixtureRequest
) -> None:
    loaded, x = tcsym.load(request.getfixturevalue(folder), constants=WEIGHTS), _random(5, 20)
    want = loaded(x)
    assert not python_frames(lambda: loaded._enter(x))
    np.testing.assert_array_equal(loaded(x), want)


def test_each_that_is_loaded_has_constants_of_its_own(open_: Path) -> None:
    others = {"U": _random(3, 4), "v": _random(4)}
    one, two = tcsym.load(open_, constants=WEIGHTS), tcsym.load(open_)
    with pytest.raises(CallError, match="constants are not bound"):
        two(_random(2, 3))
    two.bind(**others)
    np.testing.assert_array_equal(two(_random(2, 3)), _session(others)(_random(2, 3)))
    np.testing.assert_array_equal(one(_random(2, 20)), _session(WEIGHTS)(_random(2, 20)))
    two.bind(**WEIGHTS)
    v = np.zeros(33, np.float32)
    two.bind(v=v)
    want = _session({**WEIGHTS, "v": v})(_random(2, 20))
    np.testing.assert_array_equal(two(_random(2, 20)), want)


def _in_use() -> tuple[int, int]:
    """Descriptors and mappings of files of this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), sum("affine" in x for x in maps)


def test_what_is_loaded_is_gone_with_the_last_who_has_it(stored: Path, open_: Path) -> None:
    x, want = _random(2, 20), _session(WEIGHTS)(_random(2, 20))

    def call(loaded: Any, given: Any) -> None:
        for _ in range(3):
            np.testing.assert_array_equal(loaded(given), want)

    gc.disable()  # nothing of it needs a search
    try:
        call(tcsym.load(open_, constants=WEIGHTS), x)
        before = _in_use()
        for k in range(20):
            loaded = tcsym.load(stored) if k % 2 else tcsym.load(open_, constants=WEIGHTS)
            for given in (x, np.asfortranarray(x)):
                call(loaded, given)
                thread = Thread(target=call, args=(loaded, given))  # has scratch memory of its own
                thread.start()
                thread.join()
            del loaded
            assert _in_use() == before
    finally:
        gc.enable()


def test_memory_of_threads_that_live_longer_is_gone_too(open_: Path) -> None:
    loaded, x, go, want = tcsym.load(open_, constants=WEIGHTS), _random(300, 20), Event(), []

    def call(own: list[Any]) -> None:
        want.append(own.pop()(x))
        go.wait()

    thread = Thread(target=call, args=([loaded],))
    thread.start()
    while not want:
        time.sleep(1e-3)
    del loaded
    go.set()
    thread.join()
    np.testing.assert_array_equal(want[0], _session(WEIGHTS)(x))


def test_equal_loads_share_until_one_binds_others(stored: Path) -> None:
    x, before = _random(2, 20), _in_use()
    one = tcsym.load(stored)
    after = _in_use()
    others = [tcsym.load(stored) for _ in range(5)]
    assert _in_use() == after != before
    v = WEIGHTS["v"] + 1
    one.bind(v=v)
    np.testing.assert_array_equal(one(x), _session({**WEIGHTS, "v": v})(x))
    for other in (*others, tcsym.load(stored)):
        np.testing.assert_array_equal(other(x), _session(WEIGHTS)(x))
    with pytest.raises(SizeError, match="`v` has shape"):
        others[0].bind(v=v[1:])
    del one, others, other
    assert _in_use() == before


def test_a_folder_that_was_written_again_is_loaded_again(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored, folder := tmp_path / "again")
    one, x = tcsym.load(folder), _random(2, 20)
    changed = {**WEIGHTS, "v": WEIGHTS["v"] + 1}
    np.save(new := tmp_path / "new.npy", changed["v"])
    new.rename(folder / "affine.v.npy")
    np.testing.assert_array_equal(tcsym.load(folder)(x), _session(changed)(x))
    np.testing.assert_array_equal(one(x), _session(WEIGHTS)(x))


def test_they_may_be_bound_while_threads_call(open_: Path) -> None:
    loaded, x = tcsym.load(open_, constants=WEIGHTS), _random(6, 20)
    other = {"U": WEIGHTS["U"] + 1, "v": WEIGHTS["v"]}
    known = [_session(w)(x).copy() for w in (WEIGHTS, other)]
    wrong = []

    def call() -> None:
        for _ in range(200):
            y = loaded(x)
            if not any(np.array_equal(y, w) for w in known):
                wrong.append(y)

    threads = [Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(50):
        loaded.bind(**(WEIGHTS, other)[k % 2])
    for thread in threads:
        thread.join()
    assert not wrong


def test_wrong_constants_are_errors_of_their_kinds(stored: Path, open_: Path) -> None:
    with pytest.raises(OptionError, match="`Q` is no constant of affine"):
        tcsym.load(open_, constants={"Q": WEIGHTS["U"]})
    with pytest.raises(SizeError, match="`v` is missing"):
        tcsym.load(open_, constants={"U": WEIGHTS["U"]})
    with pytest.raises(SizeError, match=r"`v` has shape \(4,\), expected \(33,\)"):
        tcsym.load(open_, constants={**WEIGHTS, "v": _random(4)})
    with pytest.raises(TCTypeError, match="`v` is float64"):
        tcsym.load(open_, constants={**WEIGHTS, "v": np.zeros(33)})
    with pytest.raises(SizeError, match="`N` is 100, but it is at most 99 here"):
        tcsym.load(open_, constants={"U": _random(3, 100), "v": _random(100)})
    with pytest.raises(SizeError, match="`K` is 3, expected 20"):
        tcsym.load(stored, constants={"U": _random(3, 33)})
    loaded, v = tcsym.load(open_, constants=WEIGHTS), WEIGHTS["v"].reshape(1, 33)
    with pytest.raises(SizeError, match=r"`X` has shape \(2, 3\), expected \(2, 20\)"):
        loaded(_random(2, 3))
    with pytest.raises(ImmutableError, match="`Y` overlaps `v`"):
        loaded(_random(1, 20), out=v)
    with pytest.raises(OptionError, match="`Q`, which is no input"):
        _kernel().export(open_, constants=("Q",))
    with pytest.raises(TargetError, match="no code for devices"):
        _kernel().export(open_, constants=("U",), targets=["cuda:sm_80"])
    (damaged := stored.parent / "damaged").mkdir()
    for file in stored.iterdir():
        shutil.copy(file, damaged)
    np.save(damaged / "affine.v.npy", np.zeros(32, np.float32))
    with pytest.raises(SizeError, match=r"`v` has shape \(32,\), expected \(33,\)"):
        tcsym.load(damaged)


def test_c_programs_bind_them_by_the_header(tmp_path: Path) -> None:
    given = {"U": np.arange(6, dtype=np.float32).reshape(3, 2), "v": np.ones(2, np.float32)}
    folder = tcsym.define(AFFINE, target="cpu:novector").export(tmp_path / "a", constants=given)
    program = tmp_path / "main"
    command = ["cc", "-Wall", "-Werror", str(HERE / "constants.c"), f"-I{folder}", f"-L{folder}"]
    command += ["-laffine", f"-Wl,-rpath,{folder}", "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "0: 39 51 84 114 ",
        "0: 24 24 45 33",
        "11: affine: `Y` overlaps `v`",
        "4: affine: size `K` is 2, expected 3",
        "4: affine: `v` has size 3 on axis 0, expected 2",
        "0",
        "0: 39",
    ]
    np.save(folder / "affine.v.npy", np.ones(2))
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert "affine.v.npy` is not {'descr': '<f4'" in done.stdout.splitlines()[0]


def test_tvm_ffi_binds_them(stored: Path, open_: Path) -> None:
    ffi = pytest.importorskip("tvm_ffi")
    x, y = _random(3, 20), np.empty((3, 33), np.float32)
    for folder in (stored, open_):
        module = ffi.load_module(str(folder / "libaffine.so"))
        if folder is open_:
            with pytest.raises(TypeError, match="constants are not bound"):
                module.affine(*map(ffi.from_dlpack, (x, y)))
            module.affine_bind(*map(ffi.from_dlpack, WEIGHTS.values()))
        module.affine(*map(ffi.from_dlpack, (x, y)))
        np.testing.assert_array_equal(y, _session(WEIGHTS)(x))
        with pytest.raises(ValueError, match="`v` has size 4 on axis 0, expected 33"):
            module.affine_bind(*map(ffi.from_dlpack, (WEIGHTS["U"], _random(4))))
