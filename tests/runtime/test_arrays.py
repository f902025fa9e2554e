# SPDX-License-Identifier: Apache-2.0
"""What counts as an array, read in place."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.arrays import data_pointer, view_of
from tests.call_errors import ADD, F32, failing, ones


class Interface:
    def __init__(self, x: Any) -> None:
        self.x, self.__array_interface__ = x, x.__array_interface__


class OnlyDLPack:
    def __init__(self, x: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.x, self.device = x, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OnGPU:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (1, False), "version": 3}  # noqa: RUF012


@pytest.mark.parametrize(
    "x",
    [
        array.array("f", [1, 1, 1]),
        memoryview(ones(3)),
        (ctypes.c_float * 3)(1, 1, 1),
        Interface(ones(3)),
        OnlyDLPack(ones(3)),
        np.ones((3, 1), F32)[:, 0].view(np.matrix).A1,
        ones(9)[::3],
        ones(3)[::-1],
        np.broadcast_to(F32(1), (3,)),
        np.frombuffer(b"\0" + ones(3).tobytes(), F32, 3, 1),
        np.ones(3, [("c", "u1"), ("x", "f4")])["x"],
        np.require(ones(3), requirements="W"),
    ],
    ids=lambda x: type(x).__name__,
)
@pytest.mark.usefixtures("interpreted")
def test_accepted_arrays(x: Any) -> None:
    f = tc.define(ADD)
    for result in (f(x, ones(3)), f(ones(3), x), f.reference(x, ones(3))):
        assert type(result) is np.ndarray and result.tolist() == [2, 2, 2]


def test_bytes_are_uint8() -> None:
    f = tc.define("def f(uint8(N) A) -> (O) { O(i) = A(i) }")
    assert f.reference(b"abc").tolist() == [97, 98, 99]


@pytest.mark.parametrize("x", [OnGPU(), OnlyDLPack(ones(3), (2, 0))], ids=["interface", "dlpack"])
def test_gpu_arrays_say_what_to_do(x: Any) -> None:
    error = failing(ADD, "float(N) |A", x, ones(3), kind="device")
    assert "copy it to the CPU" in error.hint


def test_nothing_is_copied() -> None:
    x = ones(4, 6)
    for same in (x, x[1:, ::2], x.T, Interface(x), OnlyDLPack(x), memoryview(x)):
        view = view_of(same)
        back = np.asarray(same) if not isinstance(same, OnlyDLPack) else x
        assert view.pointer == back.__array_interface__["data"][0]
        assert (view.shape, view.strides) == (back.shape, back.strides)
        assert data_pointer(back) == view.pointer
