"""An artifact's folder -> a function of arrays, without the compiler: ctypes and numpy.

On devices, arrays, results and streams are those of the run time, by way of pycuda; the library
itself loads code and launches it.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.artifact.errors import FORMAT, KINDS, MANIFEST
from tcsym.errors import ERROR_KINDS, CallError, OptionError, TCError
from tcsym.process.config import SYNC
from tcsym.process.threads import get_num_threads
from tcsym.runtime.arrays import (
    empty,
    note_written,
    numpy_array,
    private_copy,
    result_object,
    view_of,
)
from tcsym.runtime.entering import EntryImage, load_entry, read_tensors, with_sizes
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.runtime.overlap import obstacle
from tcsym.runtime.packing import packed
from tcsym.runtime.scalars import is_scalar
from tcsym.runtime.view import CUDA, Library, Misplaced, Unusable, View
from tcsym.sizes.values import size_value
from tcsym.types import NAMES, DType

if TYPE_CHECKING:
    from tcsym.runtime.device import Device
    from tcsym.runtime.size_functions import Shape


def load(path: str | PathLike[str], *, constants: Mapping[str, object] | None = None) -> Artifact:
    """The kernel of an artifact that `kernel.export` wrote.

    constants: arrays by name; those that are missing are the folder's, or `Artifact.bind` gives
    them. Errors: OptionError if it is no artifact, or has no such constants; those of a call.
    """
    folder = Path(path)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest.get("format") != FORMAT:
            hint = "export it again with this version"
            raise OptionError(f"`{folder}` is of another version of tcsym", hint=hint)
        file = folder.resolve() / manifest["library"]
        if file.stat().st_size != manifest["bytes"]:  # what is mapped and not there ends a process
            raise ValueError(f"`{file.name}` has not the {manifest['bytes']} bytes of its export")
        open_library = _instance if manifest["constants"] else ctypes.CDLL
        library = open_library(str(file))
        stored = [t for t in manifest["constants"] if "file" in t]
        given = {t["name"]: _mapped(folder / t["file"], t["type"]) for t in stored}
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(f"`{folder}` is no artifact: {error}") from None
    made = Artifact(manifest, library)
    given |= dict(constants or {})
    if given:
        made.bind(**given)
    return made


def _instance(path: str) -> ctypes.CDLL:
    """A library by itself, as constants that are bound belong to it: the system loads a file once.
    By its name, too, so the descriptor stays open."""
    file = os.memfd_create(Path(path).name)
    with open(file, "wb", closefd=False) as memory:
        memory.write(Path(path).read_bytes())
    return ctypes.CDLL(f"/proc/self/fd/{file}")


def _mapped(path: Path, dtype: str) -> Any:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # nothing can be mapped of an empty one
        found = np.load(path, allow_pickle=False)
    return found.view(NAMES[dtype].numpy)


class _Code:
    """A function of an artifact as an entry calls it."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.library = library
        self.address = ctypes.cast(library[name], ctypes.c_void_p).value or 0


class Artifact:
    """A kernel without its compiler, called with arrays.

    name: of the def.
    manifest: what its folder says of it.
    level: the kind of processor whose code runs here; "none" if there is code for devices only.
    """

    def __init__(self, manifest: Mapping[str, Any], library: ctypes.CDLL) -> None:
        self.name: str = manifest["name"]
        self.manifest = manifest
        self._inputs, self._outputs = manifest["inputs"], manifest["outputs"]
        self._types = [NAMES[t["type"]] for t in (*self._inputs, *self._outputs)]
        self._sizes: list[str] = manifest["sizes"]
        self._places: dict[str, int] = manifest.get("places", {})
        self._run = library[f"{self.name}_run"]
        self._extents = library[f"{self.name}_extents"]
        self._extents.restype = None
        self._error = library[f"{self.name}_error"]
        self._error.restype = ctypes.c_char_p
        self._set_threads = library[f"{self.name}_set_threads"]
        level = library[f"{self.name}_level"]
        level.restype = ctypes.c_char_p
        self.level: str = level().decode()
        self._device: Device | None = None
        self._used: set[tuple[int, int]] = set()  # devices and streams
        if manifest.get("devices"):
            from tcsym.runtime.device import device_of

            self._device = device_of("cuda")
            self._enqueue, self._wait = (library[f"{self.name}_cuda_{f}"] for f in ("run", "wait"))
            pointer = ctypes.c_void_p
            self._enqueue.argtypes = [pointer, pointer, ctypes.c_int, pointer]
            self._wait.argtypes = [ctypes.c_int, pointer]
        self._ranks = [len(t["shape"]) for t in (*self._inputs, *self._outputs)]
        self._values = ctypes.c_int64 * max(1, len(self._sizes))
        self._buffers = ctypes.c_void_p * len(self._ranks)
        self._numbers = ctypes.c_int64 * max(1, sum(self._ranks))
        self._library = library
        self._fixed: dict[str, int] = manifest["fixed"]
        self._constants: dict[str, View] = {}
        self._enter = self._serve if manifest["constants"] else self._entered()
        self._last: tuple[tuple[int, ...], Any, list[Shape]] | None = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays, in declaration order or by name; `sizes=`: values that no input has.

        Returns one array, or a named tuple in declaration order; of torch if an input is.
        Errors: TCError of the kinds call, size, rank, type, immutable, bounds, init,
        device, target.
        """
        return self._enter(*args, **kwargs)

    def bind(self, /, **constants: Any) -> None:
        """Say what constants are from now on: those that are given, or have changed.

        What follows from them is made now, or by the next calls. Their memory is read by calls, and
        is not to be written until they are bound again.
        Errors: OptionError for what is no constant; else those of a call.
        """
        known: list[dict[str, Any]] = self.manifest["constants"]
        names = [t["name"] for t in known]
        for name in constants:
            if name not in names:
                hint = f"constants are {', '.join(names) or 'none'}"
                raise OptionError(f"`{name}` is no constant of {self.name}", hint=hint)
        given = {**self._constants, **constants}
        views, told = dict[str, View](), dict[str, int]()
        for t in known:
            name = t["name"]
            if name not in given:
                raise self._failed("size", f"`{name}` is missing")
            x = given[name]
            views[name] = view = x if isinstance(x, View) else self._view(t, NAMES[t["type"]], x)
            expected = [
                told.setdefault(e, n) if e in self._sizes else int(e)
                for e, n in zip(t["shape"], view.shape)
            ]
            if view.shape != tuple(expected):
                message = f"`{name}` has shape {view.shape}, expected {tuple(expected)}"
                raise self._failed("size", message)
        memory = (ctypes.c_void_p * len(views))(*[v.pointer for v in views.values()])
        self._set_threads(get_num_threads())
        self._require(
            self._library[f"{self.name}_bind"](
                memory, self._values(*[told.get(n, 0) for n in self._sizes])
            )
        )
        self._constants, self._fixed = views, {**self.manifest["fixed"], **told}
        self._enter = self._entered()

    def _entered(self) -> Callable[..., Any]:
        """What calls enter: native code that passes on to Python what is unusual."""
        words = self.manifest["entry"]
        if words is None or not HAS_ENTRIES:
            return self._serve
        told = {self._sizes.index(n): self._fixed[n] for n in self.manifest["told"]}
        code = _Code(self._library, f"{self.name}_enter")
        inputs, outputs = [
            [(t["name"], NAMES[t["type"]].value) for t in own]
            for own in (self._inputs, self._outputs)
        ]
        for name, place in self._places.items():
            inputs.insert(place, (name, DType.INT64.value))
        given = tuple(self.manifest["given"])
        known = with_sizes(bytes.fromhex(words), told), tuple(inputs), tuple(outputs), given
        image = EntryImage(self.name, *known)

        def failed(found: int) -> None:
            raise self._error_of(found)

        return load_entry(image, code, self._serve, failed, native.Arena())

    def _serve(self, /, *args: Any, sizes: Mapping[str, int] | None = None, **kwargs: Any) -> Any:
        if self.manifest["constants"] and not self._constants:
            raise self._failed("call", "constants are not bound, which `bind` does")
        given = self._matched(args, kwargs)
        sizes = self._with_given(given, sizes or {})
        pairs = zip(self._inputs, self._types)
        views = [self._view(t, d, given[t["name"]]) for t, d in pairs]
        values, shapes = self._bound(self._sizes_of(views, sizes))
        for t, view, shape in zip(self._inputs, views, shapes):
            if view.shape != shape:
                message = f"`{t['name']}` has shape {view.shape}, expected {shape}"
                raise self._failed("size", message)
        updated = self._updated(views)
        if self._device is not None and any(v.place.type == CUDA for v in views):
            return self._on_device(self._device, views, values, shapes, updated)
        library: Library = "torch" if any(v.library == "torch" for v in views) else "numpy"
        if library == "torch" and HAS_ENTRIES:
            read_tensors()
        results = [
            empty(library, shape, dtype)
            for shape, dtype in zip(shapes[len(views) :], self._types[len(views) :])
        ]
        buffers = self._buffers(*[v.pointer for v in (*views, *results)])
        self._set_threads(get_num_threads())
        self._require(self._run(buffers, values))
        return self._packed(results, updated)

    def _on_device(
        self,
        device: Device,
        views: Sequence[View],
        values: Any,
        shapes: Sequence[Shape],
        updated: Sequence[tuple[View, View]],
    ) -> Any:
        """Enqueued on the stream of the arguments."""
        names = [t["name"] for t in self._inputs]
        try:
            views, place = device.gathered(names, views)
        except Misplaced as why:
            raise self._failed("device", f"`{names[why.k]}` {why}") from None
        arrays = [v for v in views if v.library in ("torch", "cupy")] or [
            v for v in views if v.shape
        ]
        library = arrays[0].library if arrays else views[0].library
        results = [
            device.result(library, shape, dtype, place)
            for shape, dtype in zip(shapes[len(views) :], self._types[len(views) :])
        ]
        buffers = self._buffers(*[v.pointer for v in (*views, *results)])
        self._require(self._enqueue(buffers, values, place.number, place.stream))
        self._used.add((place.number, place.stream))
        if SYNC.read():
            self.synchronize()
        return self._packed(results, updated)

    def synchronize(self) -> None:
        """Wait for calls on devices. Errors: what they found while they ran, as BoundsError."""
        for number, stream in tuple(self._used):
            self._require(self._wait(number, stream))

    def _require(self, code: int) -> None:
        if code:
            raise self._error_of(code)

    def _packed(self, results: Sequence[View], updated: Sequence[tuple[View, View]]) -> Any:
        """What the caller gets, once the caller's memory has what was updated."""
        for memory, view in updated:
            if memory is not view:
                np.copyto(numpy_array(memory), numpy_array(view))
            note_written(memory.owner)
        names = tuple([t["name"] for t in self._outputs])
        return packed(names, tuple([result_object(view) for view in results]))

    def _matched(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = [t["name"] for t in self._inputs]
        for name, place in self._places.items():
            names.insert(place, name)
        given = dict(zip(names, args))
        if len(args) > len(names):
            raise self._failed("call", f"takes {len(names)} arguments, {len(args)} are given")
        for name, x in kwargs.items():
            if name not in names or name in given:
                what = "is given twice" if name in given else "is no parameter"
                raise self._failed("call", f"`{name}` {what}")
            given[name] = x
        missing = [name for name in names if name not in given and name not in self._places]
        if missing:
            raise self._failed("size", f"`{missing[0]}` is missing")
        return given

    def _with_given(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes with those that are arguments."""
        known = {**self._fixed, **sizes}
        for name in self._places:
            if name not in given:
                continue
            number = size_value(given[name])
            if number is None or number < 0:
                kind = "type" if number is None else "size"
                raise self._failed(kind, f"`{name}` is {given[name]!r}, expected an integer >= 0")
            if known.setdefault(name, number) != number:
                raise self._failed("size", f"`{name}` is {number}, expected {known[name]}")
        return known

    def _view(self, tensor: Mapping[str, Any], dtype: DType, x: Any) -> View:
        name, rank = tensor["name"], len(tensor["shape"])
        try:
            number = rank == 0 and is_scalar(x) and "inout" not in tensor
            read = view_of if self._device is None else self._device.view_of
            found = read(np.asarray(x, dtype.numpy) if number else x)
        except Unusable as why:
            raise self._failed("type", f"`{name}` {why}") from None
        if len(found.shape) != rank:
            raise self._failed("rank", f"`{name}` has {len(found.shape)} dimensions, not {rank}")
        if found.dtype is not dtype:
            raise self._failed("type", f"`{name}` is {found.type_name}, expected {dtype}")
        if found.dense and found.aligned:
            return found
        if found.place.type == CUDA:
            raise self._failed("layout", f"`{name}` is not dense, and copies on devices are yours")
        return private_copy(found)

    def _updated(self, views: list[View]) -> list[tuple[View, View]]:
        """The caller's memory of arrays that are updated, and what stands for it."""
        memory = [v.original or v for v in views]
        for k, t in enumerate(self._inputs):
            others = {x["name"]: m for x, m in zip(self._inputs, memory) if x is not t}
            why = obstacle(memory[k], others) if "inout" in t else ""
            if why:
                message = f"`{t['name']}` is updated in place, but {why}"
                raise self._failed("immutable", message)
        return [(m, v) for t, m, v in zip(self._inputs, memory, views) if "inout" in t]

    def _sizes_of(self, views: Sequence[View], sizes: Mapping[str, int]) -> tuple[int, ...]:
        known = {**self._fixed, **sizes}
        for t, view in zip(self._inputs, views):
            for extent, n in zip(t["shape"], view.shape):
                if extent in self._sizes:
                    known.setdefault(extent, n)
        for name in known:
            if name not in self._sizes:
                raise self._failed("size", f"`{name}` is no size")
        for name in self._sizes:
            if name not in known:
                raise self._failed("size", f"free size `{name}` is missing")
        return tuple([known[n] for n in self._sizes])

    def _bound(self, sizes: tuple[int, ...]) -> tuple[Any, list[Shape]]:
        """Sizes for C, and the shapes of all arguments; those of the last sizes are kept."""
        if self._last is None or self._last[0] != sizes:
            values, numbers = self._values(*sizes), self._numbers()
            self._extents(values, numbers)
            shapes: list[Shape] = []
            at = 0
            for rank in self._ranks:
                shapes.append(tuple(numbers[at : at + rank]))
                at += rank
            if any(min(shape, default=0) < 0 for shape in shapes):
                raise self._failed("size", "a result has a negative size")
            self._last = sizes, values, shapes
        return self._last[1:]

    def _error_of(self, code: int) -> TCError:
        """What the library says of its last call in this thread."""
        return self._failed(KINDS[code], self._error().decode().removeprefix(f"{self.name}: "))

    def _failed(self, kind: str, message: str) -> TCError:
        made = ERROR_KINDS.get(kind, CallError)
        return made(f"{self.name}: {message}")

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{t['type']}({', '.join(t['shape'])}) {t['name']}" for t in self._inputs
        )
        return f"<tcsym artifact {self.name}({inputs})>"
