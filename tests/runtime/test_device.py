# SPDX-License-Identifier: Apache-2.0
"""What runs code, and where its arrays must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.compiler import analyse, compile_program
from tcsym.options import Options
from tcsym.runtime.arguments import bind
from tcsym.runtime.arrays import numpy_view, view_of
from tcsym.runtime.cpu import Cpu
from tcsym.runtime.device import DEVICES, Code, LoadedCode, device_of
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.runtime.results import match_outputs, prepare_outputs
from tcsym.runtime.stats import Counters
from tcsym.runtime.variants import Variants
from tcsym.runtime.view import HERE, Place, View
from tcsym.target.names import NAMED, resolve_target
from tcsym.target.target import Target
from tcsym.types import DType
from tests.call_errors import ADD, F32, failing, ones
from tests.targets import target_of

CUDA = Place(2, 1, "cuda:1", "pass `x.cpu()`")


class Noting(Cpu):
    """The CPU, which notes what it is asked for, and reads memory of another type."""

    name = "test device"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reads = frozenset((99,))

    def require(self, target: Target) -> None:
        self.asked.append(f"require {target.name}")

    def load(self, compiled: Any, fault_error: Any) -> Any:
        self.asked.append("load")
        return super().load(compiled, fault_error)

    def result(self, library: Any, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        self.asked.append("result")
        return super().result(library, shape, dtype, place)

    def temporary(self, shape: tuple[int, ...], dtype: DType, place: Place) -> View:
        self.asked.append("temporary")
        return super().temporary(shape, dtype, place)

    def private_copy(self, view: View) -> View:
        self.asked.append("private_copy")
        return super().private_copy(view)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    device = Noting()
    monkeypatch.setitem(DEVICES, "other", device)
    yield device


def plan_on(target: Target | str | None) -> CallPlan:
    return plan_call(analyse(ADD)["add"], {}, frozenset(), target)


def placed(x: Any) -> View:
    """As `view_of`, of memory that the test device reads."""
    return numpy_view(np.asarray(x))._replace(place=Place(99, 0, "elsewhere"))


def test_every_target_has_a_device() -> None:
    for name in ("cpu", *NAMED):
        kind = resolve_target(name).kind
        assert device_of(name) is DEVICES[kind]
    assert device_of(None) is device_of("cpu:avx2") is device_of(target_of("novector"))


def test_code_of_the_cpu_is_code() -> None:
    target = resolve_target("cpu:novector")
    layouts: Any = ("dense",) * 3
    code: LoadedCode = device_of(target).load(
        compile_program(analyse(ADD)["add"], target, Options(), {}, layouts),
        plan_on(None).fault_error,
    )
    assert code.is_whole and code.whole() is code and code.grown() is code
    a, b, c = ones(5), ones(5), np.zeros(5, F32)
    pointers = {"A": a, "B": b, "C": c}
    run: Code = code
    given = [pointers[n].ctypes.data for n in code.compiled.arguments]
    assert run.run(given, [5], 1) == 0 and c.tolist() == [2] * 5


def test_variants_ask_the_plans_device(other: Noting) -> None:
    target = target_of("novector")
    plan = replace(plan_on(target), device=other)
    variants = Variants(plan, target, Options(), {}, Counters())
    variant = variants.made_for(variants.dense)
    assert other.asked[0] == "require cpu:novector" and "load" in other.asked
    views = [numpy_view(x) for x in (ones(3), ones(3), np.zeros(3, F32))]
    assert variant.run(views, (3,), 1) == 0


def test_memory_comes_from_the_plans_device(other: Noting) -> None:
    plan = plan_on(replace(target_of("novector"), name="other:1"))
    assert plan.device is other
    crooked = np.ones(13, np.uint8)[1:].view(F32)  # at no multiple of its elements
    bound = bind(plan, (memoryview(ones(3)), memoryview(crooked)), None, placed)
    prepare_outputs(plan, bound, None)
    assert other.asked == ["private_copy", "result"]


def test_numpy_arrays_are_elsewhere_for_another_device(other: Noting) -> None:
    plan = plan_on("other")
    with pytest.raises(tc.DeviceError) as error:
        bind(plan, (ones(3), ones(3)), None)
    assert "`A` is on device cpu, this kernel runs on the test device" in error.value.message
    with pytest.raises(tc.DeviceError, match="`out` for `C` is on device cpu"):
        bound = bind(plan, [memoryview(ones(3))] * 2, None, placed)
        prepare_outputs(plan, bound, match_outputs(plan, ones(3)))


def test_views_are_told_by_their_place() -> None:
    plan = plan_on(None)
    assert view_of(ones(3)).place == HERE
    for wrong in (ones(3), ones(3, 2), np.ones(3)):  # before its rank and its type
        away = numpy_view(wrong)._replace(place=CUDA)
        with pytest.raises(tc.DeviceError) as error:
            bind(plan, (ones(3), memoryview(wrong)), None, lambda _, x=away: x)
        assert "`B` is on device cuda:1, this kernel runs on the CPU" in error.value.message
        assert error.value.hint == "pass `x.cpu()`" and error.value.column == ADD.index("B") + 1


class Foreign:
    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack__(self, **_: object) -> Any:
        raise BufferError

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 3


@pytest.mark.parametrize(("kind", "name"), [(2, "cuda:3"), (8, "metal:3"), (77, "of type 77:3")])
def test_foreign_memory_is_named(kind: int, name: str) -> None:
    error = failing(ADD, "float(N) |A", Foreign(kind), ones(3), kind="device")
    assert f"`A` is on device {name}, this kernel runs on the CPU" in error.message
    assert isinstance(error, tc.TCTypeError)
    with pytest.raises(tc.DeviceError, match=f"operand 1 is on device {name}"):
        tc.einsum("i,i->i", ones(3), Foreign(kind))
