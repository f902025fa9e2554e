# SPDX-License-Identifier: Apache-2.0
"""Whose arrays lie on the device: torch's, or in a rehearsal what stands in its place."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from tcsym.runtime.cuda.arrays import DeviceArray

ROUNDS = 5
ROUND_MS = 20.0
MOST_CALLS = 1000  # of a round


class Library(Protocol):
    """xp: functions of float64 arrays, which numpy and torch name alike. is_small: only sizes that
    a rehearsal takes."""

    xp: Any
    is_small: bool

    def random(self, *shape: int, dtype: str = "float32") -> Any:
        """From the normal distribution, on the device."""

    def whole(self, *shape: int, dtype: str = "float32", low: int = -2, end: int = 3) -> Any:
        """Whole numbers of `low` to `end`, without `end`."""

    def filled(self, *shape: int, dtype: str = "float32", value: float = float("nan")) -> Any:
        """What a kernel has to overwrite."""

    def of(self, x: np.ndarray[Any, Any]) -> Any:
        """A copy of an array of the host."""

    def host(self, x: Any) -> np.ndarray[Any, Any]:
        """A copy there."""

    def shifted(self, x: Any) -> Any:
        """The same values, one element behind a multiple of 16 bytes."""

    def assign(self, to: Any, x: Any) -> None:
        """The values of `x` into the memory of `to`."""

    def turned(self, x: Any) -> Any:
        """The matrix with its dimensions exchanged, where it lies."""

    def wide(self, x: Any) -> Any:
        """In float64, where `xp` computes."""

    def rounded(self, x: Any, dtype: str) -> Any:
        """float64 values through another type."""

    def stream(self) -> AbstractContextManager[object]:
        """What is called inside is on a stream of its own, behind work that takes a while."""

    def captured(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """What `run` returned while a graph took its calls, and what launches that."""

    def synchronize(self) -> None:
        """Until the device is done. Raises once its context is broken."""

    def milliseconds(self, run: Callable[[], Any], calls: int) -> float:
        """Of a call, by the device's clock."""

    def as_tf32(self, allowed: bool) -> AbstractContextManager[object]:
        """Inside, the library's own products may take ten bits of a factor."""

    def rivals(self) -> dict[str, Callable[..., Any]]:
        """The library's own functions, by the names of `speeds`."""

    def about(self) -> dict[str, Any]:
        """The device and the versions."""


class Torch:
    """torch's tensors. device: its name; tests without one take the processor."""

    is_small = False

    def __init__(self, device: str = "cuda") -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
        torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(0)
        self.torch = self.xp = torch
        self.device = device

    def random(self, *shape: int, dtype: str = "float32") -> Any:
        return self.torch.randn(*shape, device=self.device).to(getattr(self.torch, dtype))

    def whole(self, *shape: int, dtype: str = "float32", low: int = -2, end: int = 3) -> Any:
        made = self.torch.randint(low, end, shape, device=self.device)
        return made.to(getattr(self.torch, dtype))

    def filled(self, *shape: int, dtype: str = "float32", value: float = float("nan")) -> Any:
        return self.torch.full(shape, value, device=self.device, dtype=getattr(self.torch, dtype))

    def of(self, x: np.ndarray[Any, Any]) -> Any:
        torch, x = self.torch, np.asarray(x)
        x = x if x.flags.writeable and all(s >= 0 for s in x.strides) else x.copy()
        is_short = x.dtype.name == "bfloat16"
        host = torch.from_numpy(x.view(np.int16) if is_short else x)
        made = torch.empty_strided(
            host.shape, host.stride(), dtype=host.dtype, device=self.device
        ).copy_(host)
        return made.view(torch.bfloat16) if is_short else made

    def host(self, x: Any) -> np.ndarray[Any, Any]:
        if isinstance(x, DeviceArray):  # of a call without tensors
            return x.copy_to_host()
        torch, x = self.torch, x.cpu()
        if x.dtype != torch.bfloat16:
            return np.asarray(x.numpy())
        import ml_dtypes

        return np.asarray(x.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)

    def shifted(self, x: Any) -> Any:
        apart = self.torch.empty(x.numel() + 1, device=self.device, dtype=x.dtype)
        return apart[1:].view(x.shape).copy_(x)

    def assign(self, to: Any, x: Any) -> None:
        to.copy_(x)

    def turned(self, x: Any) -> Any:
        return x.T

    def wide(self, x: Any) -> Any:
        return x.double()

    def rounded(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self.torch, dtype)).double()

    def stream(self) -> AbstractContextManager[object]:
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            cuda._sleep(10**7)
        return cuda.stream(side)  # type: ignore[no-any-return]

    def captured(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            made = run()
        return made, graph.replay

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def milliseconds(self, run: Callable[[], Any], calls: int) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / calls

    @contextmanager
    def as_tf32(self, allowed: bool) -> Iterator[None]:
        self.torch.backends.cuda.matmul.allow_tf32 = allowed
        try:
            yield
        finally:
            self.torch.backends.cuda.matmul.allow_tf32 = False

    def rivals(self) -> dict[str, Callable[..., Any]]:
        functional, torch = self.torch.nn.functional, self.torch
        return {
            "product": torch.matmul,
            "copy": torch.clone,
            "softmax": lambda x: torch.softmax(x, 1),
            "layer_norm": lambda x, g, b: functional.layer_norm(x, x.shape[1:], g, b),
            "map": lambda x: x * 2 + 1,
            "transpose": lambda x: x.T.contiguous(),
            "embedding": lambda table, index: functional.embedding(index, table),
            "row_sum": lambda x: x.sum(1),
            "histogram": lambda index: torch.bincount(index),
            "conv2d": functional.conv2d,
            "attention": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        }

    def about(self) -> dict[str, Any]:
        cuda = self.torch.cuda
        made = cuda.get_device_properties(0)
        return {
            "device": made.name,
            "multiprocessors": made.multi_processor_count,
            "bytes": made.total_memory,
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
        }


def measured(library: Library, *ways: Callable[[], Any]) -> list[float]:
    """Milliseconds of a call of each: medians of rounds, which alternate. Each ran before."""
    calls = []
    for run in ways:
        library.milliseconds(run, 2)
        once = library.milliseconds(run, 2)
        calls.append(max(1, min(MOST_CALLS, int(ROUND_MS / max(once, 1e-6)))))
    if library.is_small:
        calls = [1] * len(ways)
    rounds = [
        [library.milliseconds(run, n) for run, n in zip(ways, calls, strict=True)]
        for _ in range(1 if library.is_small else ROUNDS)
    ]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]
