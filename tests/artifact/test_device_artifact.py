# SPDX-License-Identifier: Apache-2.0
"""Artifacts for CUDA devices: what is in them, and calls on the emulated driver."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.artifact import device_text
from tcsym.codegen.device.ptxas import Assembled, assembler
from tcsym.runtime.cuda.primary import primary
from tcsym.strategy import Bucket, Specialize
from tcsym.target.devices import driver
from tests.emulated_driver import Driver, captured, cuda, emulated
from tests.runtime.test_cuda import STREAM, Memory, random, same

__all__ = ["cuda", "emulated"]
ROOT = Path(__file__).parent.parent.parent
ROWS = """def rows(float(N,D) X, float a) -> (Y, S) {
    Y(n,d) = a * X(n,d)
    S(n) +=! Y(n,d)
}"""
PICK = "def pick(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }"
SUM = "def sum2(float(N,M) A, float(N,M) B) -> (C) { C(i,j) = A(i,j) + B(i,j) }"
pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("objcopy") is None,
    reason="artifacts are linked by a C compiler",
)


@pytest.fixture(autouse=True)
def no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_text, "assembler", lambda: None)


def test_a_folder_has_code_of_several_devices_and_its_launch_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_text, "assembler", lambda: "ptxas")
    monkeypatch.setattr(device_text, "assembled", lambda *_: Assembled(b"\x7fELF", {}))
    kernel = tc.define(SUM, target="cuda:sm_80").sum2
    folder = kernel.export(tmp_path / "s", targets=["cuda:sm_80", "cuda:sm_90a", "cpu:novector"])
    assert sorted(x.name for x in folder.iterdir()) == [
        *("libsum2.so", "manifest.json", "sum2.h"),
        *("sum2.sm_80.0.cubin", "sum2.sm_80.0.ptx", "sum2.sm_90a.0.cubin", "sum2.sm_90a.0.ptx"),
    ]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [x["name"] for x in manifest["levels"]] == ["novector"]
    newer, older = manifest["devices"]
    assert (newer["name"], older["name"]) == ("sm_90a", "sm_80")
    (version,) = older["versions"]
    assert version["files"] == ["sum2.sm_80.0.cubin", "sum2.sm_80.0.ptx"]
    assert {"function": "tcsym_task1", "blocks": "(M*N + 255)/256", "threads": 256} in version[
        "launches"
    ]
    ptx = (folder / "sum2.sm_80.0.ptx").read_text()
    assert ".target sm_80" in ptx
    assert all(f".entry {x['function']}" in ptx for x in version["launches"])
    assert "sum2_cuda_run(" in (folder / "sum2.h").read_text()
    # here it runs on the processor
    x = random(3, 5)
    np.testing.assert_array_equal(tc.load(folder)(x, x), 2 * x)


@pytest.mark.skipif(assembler() is None, reason="NVIDIA's `ptxas` is not here")
def test_machine_code_is_made_where_the_assembler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folder = tc.define(SUM, target="cuda:sm_80").sum2.export(tmp_path / "s")
    assert (folder / "sum2.sm_80.0.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.fixture
def rows(cuda: Driver, tmp_path: Path) -> Any:
    return tc.load(tc.define(ROWS, target="cuda").rows.export(tmp_path / "rows"))


def test_calls_run_on_the_device(cuda: Driver, rows: Any) -> None:
    assert rows.level == "none"
    for n, d in ((5, 7), (33, 300), (0, 4), (3, 0)):
        x = random(n, d)
        y, s = rows(Memory(x), 2.0)
        same(y, 2 * x)
        same(s, 2 * x.sum(1))
    on = Memory(random(5, 7), stream=STREAM)
    waits, launches = cuda.waits, cuda.launches
    rows(on, 2.0)
    assert (cuda.waits, cuda.stream) == (waits, STREAM) and cuda.launches > launches
    rows.synchronize()
    assert cuda.waits > waits
    rows(Memory(random(5, 7), number=1), 2.0)
    assert cuda.device == 1


def test_calls_settle(cuda: Driver, rows: Any) -> None:
    x = Memory(random(5, 700))
    results = [rows(x, 1.5), rows(x, 1.5)]
    del results[:]
    before = cuda.allocations, cuda.modules, cuda.waits
    results = [rows(x, 1.5), rows(x, 1.5)]
    assert (cuda.allocations, cuda.modules, cuda.waits) == before
    same(results[1].S, 1.5 * random(5, 700).sum(1))


def test_graphs_capture_calls(cuda: Driver, rows: Any) -> None:
    """The first one, too, which loads the code."""
    on = Memory(random(5, 7), stream=STREAM)
    with captured(STREAM) as graphs:
        y, s = rows(on, 2.0)
    graphs[0].launch(STREAM)
    same(y, 2 * random(5, 7))
    same(s, 2 * random(5, 7).sum(1))


def test_wrong_calls_are_errors_of_their_kinds(cuda: Driver, rows: Any) -> None:
    x = random(6, 8)
    with pytest.raises(tc.DeviceError, match="`a` is on cuda:1, but `X` is on cuda:0"):
        rows(Memory(x), Memory(np.ones((), np.float32), number=1))
    with pytest.raises(tc.TargetError, match="no code for this processor"):
        rows(x, 1.0)
    with pytest.raises(tc.TCError, match="`X` is not dense"):
        rows(Memory(x.T), 1.0)
    cuda.fail_launch = 1
    with pytest.raises(tc.TargetError, match="cannot be launched: the CUDA driver says: invalid"):
        rows(Memory(x), 1.0)


def test_the_newest_code_that_runs_there_is_taken(cuda: Driver, tmp_path: Path) -> None:
    kernel, x = tc.define(SUM, target="cuda").sum2, random(4, 4)
    folder = kernel.export(tmp_path / "s", targets=["cuda:sm_86", "cuda:sm_90a"])
    with pytest.raises(tc.TargetError, match=r"no code for a device of compute capability 8\.0"):
        tc.load(folder)(Memory(x), Memory(x))
    folder = kernel.export(tmp_path / "t", targets=["cuda:sm_80", "cuda:sm_90a"])
    cuda.capability = 90
    (folder / "sum2.sm_80.0.ptx").unlink()  # another one is taken
    loaded = tc.load(folder)
    same(loaded(Memory(x), Memory(x)), 2 * x)


def test_what_a_running_kernel_finds_is_reported(cuda: Driver, tmp_path: Path) -> None:
    pick = tc.load(tc.define(PICK, target="cuda").pick.export(tmp_path / "p"))
    a, bad = Memory(random(5)), Memory(np.array([0, 7], np.int32))
    pick(a, bad)
    with pytest.raises(tc.BoundsError, match="pick: index out of range in `A`"):
        pick.synchronize()
    pick.synchronize()
    pick(a, bad)
    with primary(0):
        driver().Context.synchronize()
    good = Memory(np.array([4, 0], np.int32))
    with pytest.raises(tc.BoundsError, match="in an earlier call"):
        pick(a, good)
    same(pick(a, good), random(5)[[4, 0]])


def test_machine_code_of_other_devices_is_passed_over(
    cuda: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_text, "assembler", lambda: "ptxas")
    monkeypatch.setattr(device_text, "assembled", lambda *_: Assembled(b"\x7fELF", {}))
    folder, x = tc.define(SUM, target="cuda").sum2.export(tmp_path / "s"), random(4, 4)
    same(tc.load(folder)(Memory(x), Memory(x)), 2 * x)
    for code in folder.glob("*.ptx"):
        code.unlink()
    loaded = tc.load(shutil.copytree(folder, tmp_path / "t"))
    with pytest.raises(tc.TargetError, match=r"`sum2.sm_80.0.ptx` is not beside the library"):
        loaded(Memory(x), Memory(x))


def test_the_loader_needs_no_compiler(tmp_path: Path) -> None:
    """Up to the driver, which is not there."""
    folder = tc.define(SUM, target="cuda:sm_80").sum2.export(tmp_path / "s")
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("islpy", "llvmlite", "lark", "pycuda"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, tcsym
from tcsym.target import libcuda
libcuda.LIBRARY = "libnone.so"
class Described:
    __cuda_array_interface__ = dict(shape=(2, 3), typestr="<f4", data=(64, False), version=3)
try:
    tcsym.load({str(folder)!r})(Described(), Described())
except tcsym.TargetError as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "NVIDIA's driver was not found" in done.stdout


def test_tvm_ffi_calls_it(cuda: Driver, tmp_path: Path) -> None:
    ffi = pytest.importorskip("tvm_ffi")
    folder, x = tc.define(SUM, target="cuda").sum2.export(tmp_path / "s"), random(5, 6)
    module = ffi.load_module(str(folder / "libsum2.so"))
    add = tc.define(SUM, target="cuda").sum2
    a, b, out = (add(Memory(x), Memory(k * x)) for k in (0, 1, 2))  # arrays with DLPack
    module.sum2(*map(ffi.from_dlpack, (a, b, out)))
    same(out, 3 * x)
    with pytest.raises(ValueError, match="`B` is on another device than `A`"):
        module.sum2(ffi.from_dlpack(a), ffi.from_dlpack(x), ffi.from_dlpack(out))


# ---- versions


def test_versions_of_a_strategy_are_in_the_table(tmp_path: Path) -> None:
    sizes, strategy = {"N": tc.Dim(1, 64)}, Bucket(edges={"N": (8,)})
    kernel = tc.define(SUM, target="cpu:novector", sizes=sizes, strategy=strategy).sum2
    folder = kernel.export(tmp_path / "s")
    (level,) = json.loads((folder / "manifest.json").read_text())["levels"]
    wide, *usual = [v["where"] for v in level["versions"]]
    assert wide == f"M >= {2**48}" and usual == ["N >= 1 && 8 >= N", "true"]
    loaded = tc.load(folder)
    for n in (1, 8, 9, 64):
        x = random(n, 3)
        np.testing.assert_array_equal(loaded(x, x), 2 * x)
    for n in (0, 65):
        with pytest.raises(tc.SizeError, match="`N` is"):
            loaded(random(n, 3), random(n, 3))


def test_versions_that_calls_led_to_are_in_the_table(tmp_path: Path) -> None:
    kernel = tc.define(SUM, target="cpu:novector", strategy=Specialize()).sum2
    for n in (4, 6):
        kernel(random(n, 3), random(n, 3))
    folder = kernel.export(tmp_path / "s")
    (level,) = json.loads((folder / "manifest.json").read_text())["levels"]
    assert [v["where"] for v in level["versions"]] == [
        f"N >= {2**48} || M >= {2**48}",
        "N == 4 && M == 3",
        "N == 6 && M == 3",
        "true",
    ]
    loaded = tc.load(folder)
    for n in (4, 5, 6):
        np.testing.assert_array_equal(loaded(random(n, 3), random(n, 3)), 2 * random(n, 3))
    plain = kernel.export(tmp_path / "t", strategy="symbolic")
    (level,) = json.loads((plain / "manifest.json").read_text())["levels"]
    assert [v["where"] for v in level["versions"]][1:] == ["true"]
    with pytest.raises(tc.OptionError, match="unknown strategy"):
        kernel.export(tmp_path / "u", strategy="eager")


def test_versions_of_a_device(cuda: Driver, tmp_path: Path) -> None:
    sizes = {"N": tc.Dim(1, 64)}
    kernel = tc.define(SUM, target="cuda", sizes=sizes).sum2
    loaded = tc.load(kernel.export(tmp_path / "s", strategy=Bucket(edges={"N": (8,)})))
    assert len(loaded.manifest["devices"][0]["versions"]) == 2
    for n in (3, 40):
        same(loaded(Memory(random(n, 3)), Memory(random(n, 3))), 2 * random(n, 3))
