# SPDX-License-Identifier: Apache-2.0
"""What calls of kernels enter, and what runs them (tcsym/native/*.c). Addresses are integers."""

from collections.abc import Callable
from typing import Any

import numpy as np

ARENA_BUSY: int
OUT_OF_MEMORY: int
CODE_MISSING: int
SIMT_FAULT: int
DRIVER_ERROR: int
LARGE_BYTES: int
MOST_ARRAYS: int
missing_task: int
parallel_for: int
mark: int
simt_grid: int
simt_barrier: int
simt_blocks: int
simt_grid_barrier: int
simt_shuffle: int
simt_touch: int
simt_global: int
simt_globals: int
simt_copy: int
simt_commit: int
simt_wait: int

class Arena:
    shared_bytes: int
    private_bytes: int
    def hold(self, shared_bytes: int, private_bytes: int, /) -> None: ...

class Chain:
    def __init__(
        self,
        words: bytes,
        names: tuple[str, ...],
        types: tuple[np.dtype[Any], ...],
        results: Any,
        threads: int,
        arenas: tuple[Arena | Grids, ...],
        pool: Pool,
        cores: int,
        lock: Any,
        cells: int,
        like: type | None,
        kept: object,
        failed: Callable[[int, int], object],
        slow: Callable[..., Any],
        /,
    ) -> None: ...
    def run(self, addresses: tuple[int, ...], threads: int, /) -> Any: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

class Grids:
    def __init__(
        self,
        context: int,
        fault_word: int,
        words: int,
        n_words: int,
        device: int,
        multiprocessors: int,
        least: int,
        functions: tuple[int, ...],
        n_sizes: int,
        n_buffers: int,
        /,
    ) -> None: ...
    def lend(self, stream: int, owner: object, memory: int, n_bytes: int, /) -> None: ...
    def enqueue(
        self, kernel: int, buffers: bytes, sizes: bytes, arena: int, stream: int, /
    ) -> int: ...
    def forget(self) -> None: ...

class Pool:
    address: int
    workers: int
    def stop(self) -> None: ...
    def forget(self) -> None: ...
    def wipe_on_fork(self) -> bool: ...
    def be_patient(self, patient: bool, /) -> None: ...
    def use_openmp(self, parallel: int, thread: int, threads: int, spin: int, /) -> None: ...

class Entry:
    slow: Callable[..., Any]
    kept: Any
    def __init__(
        self,
        words: bytes,
        names: tuple[str, ...],
        free_names: tuple[str, ...],
        types: tuple[np.dtype[Any], ...],
        results: Any,
        kernel: int,
        threads: int,
        served: int,
        arena: Arena | Grids,
        pool: Pool,
        cores: int,
        kept: object,
        slow: Callable[..., Any],
        failed: Callable[[int], None],
        /,
    ) -> None: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

class Switch:
    standard: Callable[..., Any]
    notice: Callable[..., Any]
    regions: list[Callable[..., Any] | None]
    first_notice: int
    total: int
    notice_total: int
    def __init__(
        self,
        words: bytes,
        names: tuple[str, ...],
        free_names: tuple[str, ...],
        regions: list[Callable[..., Any] | None],
        standard: Callable[..., Any],
        /,
    ) -> None: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def put(
        self, sizes: tuple[int, ...], function: Callable[..., Any] | None, notice_in: int, /
    ) -> None: ...
    def notice_again(self, sizes: tuple[int, ...], notice_in: int, /) -> None: ...
    def remove(self, sizes: tuple[int, ...], /) -> None: ...
    def counts(self) -> dict[tuple[int, ...], int]: ...
    def calls(self, sizes: tuple[int, ...], /) -> int: ...

def launch(
    kernel: int,
    buffers: bytes,
    sizes: bytes,
    arena: Arena,
    shared_bytes: int,
    private_bytes: int,
    threads: int,
    pool: Pool,
    /,
) -> int: ...
def set_exchange(
    capsule: object,
    first: type,
    second: type,
    grad_is_enabled: Callable[[], bool],
    increment_version: Callable[[Any], None],
    forward: Any,
    busy: tuple[Callable[[], object], ...],
    /,
) -> bool: ...
def large_array(shape: tuple[int, ...], dtype: np.dtype[Any], /) -> np.ndarray[Any, Any] | None: ...
def set_idle_memory(most: int, /) -> None: ...
def read_capsule(
    capsule: object, /
) -> tuple[int, tuple[int, ...], tuple[int, ...] | None, int, bool]: ...
def make_capsule(
    owner: object,
    pointer: int,
    shape: tuple[int, ...],
    code: int,
    device_type: int,
    device: int,
    versioned: bool,
    /,
) -> object: ...
def missing_of_driver() -> str | None: ...
def simt_report() -> str: ...
def simt_check(whether: bool, /) -> None: ...
def idle_memory() -> tuple[int, int]: ...
def set_described(make: Callable[..., tuple[object, int]], attribute: int, /) -> None: ...
def describe(kind: type, has_interface: bool, /) -> bool: ...
