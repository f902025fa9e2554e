# SPDX-License-Identifier: Apache-2.0
"""Which kind a device is of, and what is said where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.target import devices, libcuda
from tcsym.target.names import resolve_target


class Failure(Exception):
    pass


def module(count: int = 1, capability: tuple[int, int] = (8, 6), starts: bool = True) -> Any:
    """As `pycuda.driver`, or `libcuda`."""

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
    for found in (devices.driver, libcuda.library):
        found.cache_clear()
    yield
    for found in (devices.driver, libcuda.library):
        found.cache_clear()


def found(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pycuda nor a driver."""
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setattr(libcuda, "LIBRARY", "libnone.so")


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
    missing(monkeypatch)
    with pytest.raises(tc.TargetError, match="NVIDIA's driver was not found: libnone") as error:
        resolve_target("cuda")
    assert "--gpus all" in error.value.hint and "cuda:twin" in error.value.hint


def test_a_named_kind_needs_a_device_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsym.runtime.device import device_of

    target = resolve_target("cuda:sm_90a")
    missing(monkeypatch)
    with pytest.raises(tc.TargetError, match="not found") as error:
        device_of(target).require(target)
    assert "cuda:twin" in error.value.hint
    devices.driver.cache_clear()
    found(monkeypatch, module())
    with pytest.raises(tc.TargetError, match=r"`sm_90a` does not run on .* 8\.6"):
        device_of(target).require(target)


def test_a_call_without_a_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    kernel = tc.define("def f(float(N) x) -> (y) { y(i) = x(i) + 1 }", target="cuda:sm_90a")
    with pytest.raises(tc.TargetError, match="not found") as error:
        kernel(np.ones(3, np.float32))
    assert "cuda:twin" in error.value.hint
