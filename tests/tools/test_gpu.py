"""What `./dev gpu` runs on a machine with a device, as far as it can be run without one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.emulated_driver import Driver, cuda, emulated
from tests.runtime.test_cuda import Memory
from tools import device_benchmark, gpu

__all__ = ["cuda", "emulated"]
ROOT = Path(__file__).resolve().parents[2]


def test_steps_are_run_in_turn_and_end_in_time(tmp_path: Path) -> None:
    say = "import sys, os; print(os.environ.get('TCSYM_SYNC')); sys.exit({})"
    some = [
        gpu.Step("good", (sys.executable, "-c", say.format(0)), sync=True),
        gpu.Step("bad", (sys.executable, "-c", say.format(3))),
        gpu.Step("long", ("sleep", "60")),
        gpu.Step("late", ("true",)),
    ]
    begun = time.monotonic()
    done = gpu.run(some, tmp_path, 5.0, {})
    assert time.monotonic() - begun < 30
    assert [d.code for d in done] == [0, 3, None, None]
    assert (tmp_path / "good.txt").read_text() == "1\n"
    assert (tmp_path / "bad.txt").read_text() == "None\n"
    told = json.loads((tmp_path / "gpu.json").read_text())
    assert [(x["name"], x["code"]) for x in told][:2] == [("good", 0), ("bad", 3)]


def test_its_steps_can_begin(tmp_path: Path) -> None:
    """Modules are there, tests are collected, the runner takes its arguments."""
    (tmp_path / "run.py").write_text("")
    (tmp_path / "a.jsonl").write_text("")
    found = {s.name: s.command for s in gpu.steps(sys.executable, tmp_path, tmp_path)}
    assert list(found)[:4] == ["doctor", "tests", "programs", "times"]
    assert found["programs"][1:] == (
        *(str(tmp_path / "run.py"), str(tmp_path / "a.jsonl")),
        *("--mode", "device"),
    )
    collect = [*found["tests"], "-k", "products or graphs", "--collect-only"]
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("::test_") == 2, done.stdout


def test_a_package_that_is_not_packed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "is_there", lambda name: name != "islpy")
    with pytest.raises(SystemExit, match=f"lacks islpy, which is not in {tmp_path}"):
        gpu.unpack(tmp_path, tmp_path)


class Event:
    def __init__(self, **_: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return 1e3 * (other.at - self.at)


class Array(Memory):
    """As much of a tensor as the benchmark asks for; what torch does with it is nothing."""

    def __init__(self, x: Any) -> None:
        super().__init__(x)

    def __mul__(self, other: float) -> Array:
        return self

    __add__ = __mul__


def torch_like(seen: list[str]) -> ModuleType:
    """A module in torch's place, whose arrays are ours on the emulated device."""
    module = ModuleType("torch")

    def note(name: str) -> Any:
        return lambda *args: (seen.append(name), args[0])[1]

    contents = dict(
        randn=lambda *shape, device: Array(np.ones(shape, np.float32)),
        matmul=note("matmul"),
        softmax=note("softmax"),
        compile=lambda f: f,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True))),
        cuda=SimpleNamespace(Event=Event, get_device_name=lambda: "emulated"),
        __version__="0",
    )
    vars(module).update(contents)
    return module


def test_the_benchmark_runs_on_the_emulated_driver(
    cuda: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    module = torch_like(seen)
    monkeypatch.setattr(device_benchmark, "imported_torch", lambda: module)
    monkeypatch.setattr(device_benchmark, "difference", lambda got, expected: 0.0)
    monkeypatch.setattr(device_benchmark, "ROUND_MS", 0.01)
    monkeypatch.setattr(device_benchmark, "PRODUCTS", (4, 7))
    monkeypatch.setattr(device_benchmark, "ROWS_OF", ((3, 40),))
    monkeypatch.setattr(device_benchmark, "WARMING", 1)
    device_benchmark.main(str(tmp_path / "times.json"))
    told = json.loads((tmp_path / "times.json").read_text())
    assert told["device"] == "emulated" and "matmul" in seen and "softmax" in seen
    names = [x["case"] for x in told["results"]]
    assert names == ["mm 4", "mm 7", "softmax 3x40", "map 3x40"]
    assert all(set(x["ms"]) == {"tcsym", "eager", "compile"} for x in told["results"])
    assert cuda.launches > 0
