"""Which kind a device is of, and what is said where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.target import devices
from tcsym.target.names import resolve_target


class Failure(Exception):
    pass


def module(count: int = 1, capability: tuple[int, int] = (8, 6), starts: bool = True) -> Any:
    """As `pycuda.driver`."""

    class Device:
        def __init__(self, number: int) -> None:
            self.compute_capability = lambda: capability
            self.name = lambda: f"device {number}"

        @staticmethod
        def count() -> int:
            return count

    def init() -> None:
        if not starts:
            raise Failure("cuInit failed: unknown error")

    return SimpleNamespace(init=init, Device=Device, Error=Failure)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    devices.driver.cache_clear()
    yield
    devices.driver.cache_clear()


def found(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)


@pytest.mark.parametrize(
    ("here", "name"),
    [
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 9), "sm_86"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_100"),
    ],
)
def test_cuda_is_the_nearest_kind(
    monkeypatch: pytest.MonkeyPatch, here: tuple[int, int], name: str
) -> None:
    found(monkeypatch, module(capability=here))
    assert resolve_target("cuda") == resolve_target(f"cuda:{name}")


def test_code_runs_on_newer_devices() -> None:
    assert devices.runs_on("sm_80", (9, 0)) and not devices.runs_on("sm_86", (8, 0))
    assert devices.runs_on("sm_90a", (9, 0)) and not devices.runs_on("sm_90a", (10, 0))


@pytest.mark.parametrize(
    ("driver", "said", "hint"),
    [
        (module(capability=(7, 5)), "compute capability 7.5, kernels need 8.0", "on the host"),
        (module(count=0), "sees no device", "on the host"),
        (module(starts=False), "does not start: cuInit failed", "nvidia-smi"),
    ],
)
def test_what_is_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch, driver: Any, said: str, hint: str
) -> None:
    found(monkeypatch, driver)
    with pytest.raises(tc.TargetError, match=said) as error:
        resolve_target("cuda")
    assert hint in error.value.hint and "cuda:twin" in error.value.hint


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(tc.TargetError, match="pycuda, which is not installed") as error:
        resolve_target("cuda")
    assert 'pip install "tcsym[cuda]"' in error.value.hint
    library = "libcuda.so.1: cannot open shared object file"
    assert "NVIDIA's driver was not found" in devices._unloadable(library).message
    assert "cannot be loaded" in devices._unloadable("undefined symbol: cuX").message


def test_a_named_kind_needs_a_device_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsym.runtime.device import device_of

    target = resolve_target("cuda:sm_90a")
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(tc.TargetError, match="not installed") as error:
        device_of(target).require(target)
    assert "cuda:twin" in error.value.hint
    devices.driver.cache_clear()
    found(monkeypatch, module())
    with pytest.raises(tc.TargetError, match=r"`sm_90a` does not run on .* 8\.6"):
        device_of(target).require(target)


def test_a_call_without_a_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    devices.driver.cache_clear()
    kernel = tc.define("def f(float(N) x) -> (y) { y(i) = x(i) + 1 }", target="cuda:sm_90a")
    with pytest.raises(tc.TargetError, match="not installed") as error:
        kernel(np.ones(3, np.float32))
    assert "cuda:twin" in error.value.hint
