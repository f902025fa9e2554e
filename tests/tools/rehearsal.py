# SPDX-License-Identifier: Apache-2.0
"""What a CUDA device has to show, rehearsed: on the emulated driver, with numpy in torch's place.

python -m tests.tools.rehearsal NAME OUT PROGRAMS FIRST
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tcsym
from tcsym.backend import BACKENDS
from tcsym.codegen.device.ptxas import assembled, assembler
from tcsym.codegen.parts import PartialCode
from tcsym.ir.loops import Kernel
from tcsym.runtime.cuda.arrays import DeviceArray, place_of
from tcsym.runtime.cuda.primary import Memory, primary
from tcsym.runtime.native import native
from tcsym.target.devices import driver
from tcsym.target.target import Target
from tcsym.types import DType
from tests.emulated_driver import Announcing, Emulated, captured, emulation
from tools.gpu import group
from tools.gpu.case import Case, run_cases

CAPABILITY, DEVICE = 90, "sm_90a"
STREAM = 0x7730
SHORT = np.dtype(ml_dtypes.bfloat16)


class Array:
    """On the emulated device, with numpy's strides, on the stream on which its library works."""

    def __init__(
        self, library: Numpy, memory: Memory, like: np.ndarray[Any, Any], at: int = 0
    ) -> None:
        self.library, self.memory = library, memory
        self.shape, self.strides, self.dtype = like.shape, like.strides, like.dtype
        self.pointer = memory.pointer + at

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "strides": self.strides,
            "data": (self.pointer, False),
            "stream": self.library.current or 1,
        }


class Numpy:
    """A `Library`. Arrays end where the memory does that may be touched."""

    xp = np
    is_small = True

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.current = 0

    def random(self, *shape: int, dtype: str = "float32") -> Any:
        return self.of(self.rng.standard_normal(shape).astype(dtype))

    def whole(self, *shape: int, dtype: str = "float32", low: int = -2, end: int = 3) -> Any:
        return self.of(self.rng.integers(low, end, shape).astype(dtype))

    def filled(self, *shape: int, dtype: str = "float32", value: float = float("nan")) -> Any:
        return self.of(np.full(shape, value, dtype))

    def of(self, x: np.ndarray[Any, Any], at: int = 0) -> Any:
        x = np.asarray(x)
        x = x if x.flags.forc else x.copy()
        memory = primary(0).allocate(at + x.nbytes)
        if x.nbytes:
            with primary(0):
                driver().memcpy_htod(memory.pointer + at, x)
        if x.dtype == SHORT:  # which passes through DLPack
            return DeviceArray(x.shape, DType.BFLOAT16, place_of(0, 0), memory, at)
        return Array(self, memory, x, at)

    def host(self, x: Any) -> np.ndarray[Any, Any]:
        if isinstance(x, DeviceArray):
            return x.copy_to_host()
        n = int(np.prod(x.shape))
        raw = np.empty(n, x.dtype)
        primary(0).synchronize()
        if n:
            with primary(0):
                driver().memcpy_dtoh(raw, x.pointer)
        return np.ndarray(x.shape, x.dtype, raw, strides=x.strides)

    def shifted(self, x: Any) -> Any:
        return self.of(self.host(x), x.dtype.itemsize)

    def assign(self, to: Any, x: Any) -> None:
        primary(0).synchronize()
        with primary(0):
            driver().memcpy_htod(to.pointer, self.host(x))

    def turned(self, x: Any) -> Any:
        return Array(self, x.memory, np.ndarray(x.shape, x.dtype, strides=x.strides).T)

    def wide(self, x: Any) -> Any:
        return self.host(x).astype(np.float64)

    def rounded(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype).astype(np.float64)

    @contextmanager
    def stream(self) -> Iterator[None]:
        self.current = STREAM
        try:
            yield
        finally:
            self.current = 0

    def captured(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        with captured(STREAM) as graphs:
            made = run()
        return made, lambda: graphs[0].launch(STREAM)

    def synchronize(self) -> None:
        primary(0).synchronize()

    def milliseconds(self, run: Callable[[], Any], calls: int) -> float:
        begun = time.perf_counter()
        for _ in range(calls):
            run()
        tcsym.synchronize()
        return 1e3 * (time.perf_counter() - begun) / calls

    @contextmanager
    def as_tf32(self, allowed: bool) -> Iterator[None]:
        yield

    def rivals(self) -> dict[str, Callable[..., Any]]:
        return {"product": lambda a, b: a, "softmax": lambda x: x}

    def about(self) -> dict[str, Any]:
        return {"device": "emulated"}


class Recorded(Announcing):
    """PTX of what was made is in `texts`."""

    texts: set[bytes] = set()  # noqa: RUF012

    def add(self, names: Iterable[str], objects: Iterable[bytes]) -> None:
        super().add(names, objects)
        if self.device_code:
            self.texts.add(self.device_code)


class Recording(Emulated):
    def begin(self, kernel: Kernel, target: Target, min_work_per_thread: int) -> PartialCode:
        return Recorded(kernel, target, min_work_per_thread)


def code(texts: set[bytes]) -> Case:
    """What was loaded is taken by NVIDIA's assembler."""

    def run() -> dict[str, Any]:
        used = [u for t in texts for u in assembled(t.decode(), DEVICE).used.values()]
        spilled = sum(u.spills > 0 for u in used)
        return {"modules": len(texts), "functions": len(used), "spill": spilled}

    return Case("code", run)


def main() -> int:
    os.environ["TCSYM_CACHE"] = "0"
    emulation().capability = CAPABILITY
    BACKENDS["cuda"] = Recording()
    native.simt_check(False)
    library, (name, out, _, _) = Numpy(), sys.argv[1:]
    status = group.run(library, *sys.argv[1:])
    if assembler() is None or not Recorded.texts:
        return status
    return run_cases(name, [code(Recorded.texts)], library, Path(out)) or status


if __name__ == "__main__":
    sys.exit(main())
