# SPDX-License-Identifier: Apache-2.0
"""An artifact's folder -> a function of arrays, without the compiler: ctypes and numpy.

On devices, arrays, results and streams are those of the run time; the library itself loads code and
launches it.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from tcsym.artifact.errors import FORMAT, KINDS, MANIFEST
from tcsym.artifact.library import Loaded, own_library, require_artifacts
from tcsym.errors import ERROR_KINDS, CallError, MissingError, OptionError, TCError
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
    them. Errors: OptionError if it is no artifact, or has no such constants; those of a call;
    TargetError on macOS.
    """
    require_artifacts()
    folder = Path(path)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest.get("format") != FORMAT:
            hint = "export it again with this version"
            raise OptionError(f"`{folder}` is of another version of tcsym", hint=hint)
        file = folder.resolve() / manifest["library"]
        if file.stat().st_size != manifest["bytes"]:  # what is mapped and not there ends a process
            raise ValueError(f"`{file.name}` has not the {manifest['bytes']} bytes of its export")
        stored = {t["name"]: (folder / t["file"], t) for t in manifest["constants"] if "file" in t}
        key = (*[_state(x) for x in (file, *[path for path, _ in stored.values()])], str(manifest))
        is_shared = bool(stored) and not constants
        found = _shared.get(key) if is_shared else None
        if found is not None:
            return Artifact(manifest, found)
        bound = Bound(file, _opened(file, manifest), {}, manifest["fixed"])
        given = {name: _mapped(path, t["type"]) for name, (path, t) in stored.items()}
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(f"`{folder}` is no artifact: {error}") from None
    made = Artifact(manifest, bound)
    given |= dict(constants or {})
    if given:
        made.bind(**given)
    if is_shared:
        made.bound.is_shared = True
        _shared[key] = made.bound
    return made


class Bound:
    """A library with the constants that are bound in it; fixed: sizes that these or nothing tell.

    Equal loads of a folder with its own constants share one, until one of them binds others.
    """

    def __init__(
        self,
        file: Path,
        library: Loaded,
        constants: Mapping[str, View],
        fixed: Mapping[str, int],
    ) -> None:
        self.file, self.library, self.constants, self.fixed = file, library, constants, fixed
        self.is_shared = False


_shared: WeakValueDictionary[tuple[object, ...], Bound] = WeakValueDictionary()


def _opened(file: Path, manifest: Mapping[str, Any]) -> Loaded:
    name = manifest["name"]
    return own_library(file, name) if manifest["constants"] else Loaded(str(file), name)


def _state(path: Path) -> tuple[object, ...]:
    """By which a file is known, as long as it is not written."""
    found = path.stat()
    return path.resolve(), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _mapped(path: Path, dtype: str) -> Any:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # nothing can be mapped of an empty one
        found = np.load(path, allow_pickle=False)
    return found.view(NAMES[dtype].numpy)


class _Code:
    """The function of an artifact that an entry calls."""

    def __init__(self, library: Loaded) -> None:
        self.library, self.address = library, library.address("enter")


class Artifact:
    """A kernel without its compiler, called with arrays.

    name: of the def.
    manifest: what its folder says of it.
    level: the kind of processor whose code runs here; "none" if there is code for devices only.
    """

    def __init__(self, manifest: Mapping[str, Any], bound: Bound) -> None:
        self.name: str = manifest["name"]
        self.manifest = manifest
        self._inputs, self._outputs = manifest["inputs"], manifest["outputs"]
        self._types = [NAMES[t["type"]] for t in (*self._inputs, *self._outputs)]
        self._sizes: list[str] = manifest["sizes"]
        self._places: dict[str, int] = manifest.get("places", {})
        self._device: Device | None = None
        self._used: set[tuple[int, int]] = set()  # devices and streams
        if manifest.get("devices"):
            from tcsym.runtime.device import device_of

            self._device = device_of("cuda")
            self._enqueue, self._wait = map(bound.library.function, ("cuda_run", "cuda_wait"))
            pointer = ctypes.c_void_p
            self._enqueue.argtypes = [pointer, pointer, ctypes.c_int, pointer]
            self._wait.argtypes = [ctypes.c_int, pointer]
        self._ranks = [len(t["shape"]) for t in (*self._inputs, *self._outputs)]
        self._values = ctypes.c_int64 * max(1, len(self._sizes))
        self._buffers = ctypes.c_void_p * len(self._ranks)
        self._numbers = ctypes.c_int64 * max(1, sum(self._ranks))
        self._last: tuple[tuple[int, ...], Any, list[Shape]] | None = None
        self._use(bound)
        self.level = bound.library.text("level")

    def _use(self, bound: Bound) -> None:
        """Calls enter this library from now on."""
        self.bound = bound
        self._run, self._set_threads = map(bound.library.function, ("run", "set_threads"))
        self._check = bound.library.function("check")
        self._extents = bound.library.function("extents", None)
        self._fixed = bound.fixed
        self._enter = self._entered()

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
        given = {**self.bound.constants, **constants}
        views, told = dict[str, View](), dict[str, int]()
        for t in known:
            name = t["name"]
            if name not in given:
                raise self._failed(MissingError, f"`{name}` is missing")
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
        is_shared, file, library = self.bound.is_shared, self.bound.file, self.bound.library
        new = own_library(file, self.name) if is_shared else library
        new.function("set_threads")(get_num_threads())
        numbers = self._values(*[told.get(n, 0) for n in self._sizes])
        self._require(new.function("bind")(memory, numbers), new)
        self._use(Bound(file, new, views, {**self.manifest["fixed"], **told}))

    def _entered(self) -> Callable[..., Any]:
        """What calls enter: native code that passes on to Python what is unusual."""
        words, known = self.manifest["entry"], weakref.ref(self)

        def serve(*args: Any, **kwargs: Any) -> Any:
            own = known()  # a call holds it; in a circle with what it enters it would stay
            assert own is not None
            return own._serve(*args, **kwargs)

        def failed(found: int) -> None:
            own = known()
            assert own is not None
            raise own._error_of(found)

        is_open = self.manifest["constants"] and not self.bound.constants
        if words is None or not HAS_ENTRIES or is_open:
            return serve
        told = {self._sizes.index(n): self._fixed[n] for n in self.manifest["told"]}
        code = _Code(self.bound.library)
        inputs, outputs = [
            [(t["name"], NAMES[t["type"]].value) for t in own]
            for own in (self._inputs, self._outputs)
        ]
        for name, place in self._places.items():
            inputs.insert(place, (name, DType.INT64.value))
        given = tuple(self.manifest["given"])
        facts = with_sizes(bytes.fromhex(words), told), tuple(inputs), tuple(outputs), given
        return load_entry(EntryImage(self.name, *facts), code, serve, failed, native.Arena())

    def _serve(self, /, *args: Any, sizes: Mapping[str, int] | None = None, **kwargs: Any) -> Any:
        if self.manifest["constants"] and not self.bound.constants:
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

    def _require(self, code: int, library: Loaded | None = None) -> None:
        if code:
            raise self._error_of(code, library)

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
            raise self._failed(MissingError, f"`{missing[0]}` is missing")
        return given

    def _with_given(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes with those that are arguments."""
        if not isinstance(sizes, Mapping):
            message = f"`sizes` is {type(sizes).__name__}, expected a mapping of names to integers"
            raise self._failed("size", message)
        known = {**self._fixed, **{n: self._number(f"size `{n}`", x) for n, x in sizes.items()}}
        for name in self._places:
            if name not in given:
                continue
            number = self._number(f"`{name}`", given[name], "type")
            if known.setdefault(name, number) != number:
                raise self._failed("size", f"`{name}` is {number}, expected {known[name]}")
        return known

    def _number(self, what: str, x: object, otherwise: str = "size") -> int:
        """A size. otherwise: the kind of error for what is no integer."""
        number = size_value(x)
        if number is None or not 0 <= number < 2**63:
            kind = otherwise if number is None else "size"
            message = f"{what} is {x!r}, expected an integer from 0 to 2**63 - 1"
            raise self._failed(kind, message)
        return number

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
            self._require(self._check(values))
            self._extents(values, numbers)
            shapes: list[Shape] = []
            at, n = 0, len(self._inputs)
            for rank in self._ranks:
                shapes.append(tuple(numbers[at : at + rank]))
                at += rank
            if any(min(shape, default=0) < 0 for shape in shapes):
                raise self._failed("size", "a result has a negative size")
            for t, dtype, shape in zip(self._outputs, self._types[n:], shapes[n:]):
                if not dtype.holds_all(shape):
                    raise self._failed("size", f"`{t['name']}` is too large: {shape}")
            self._last = sizes, values, shapes
        return self._last[1:]

    def _error_of(self, code: int, library: Loaded | None = None) -> TCError:
        """What the library says of its last call in this thread."""
        said = (library or self.bound.library).text("error")
        return self._failed(KINDS[code], said.removeprefix(f"{self.name}: "))

    def _failed(self, kind: str | type[TCError], message: str) -> TCError:
        made = ERROR_KINDS.get(kind, CallError) if isinstance(kind, str) else kind
        return made(f"{self.name}: {message}")

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(_told, ts)) for ts in (self._inputs, self._outputs))
        return f"<tcsym artifact {self.name}({inputs}) -> ({outputs})>"


def _told(tensor: Mapping[str, Any]) -> str:
    """As in the signature of a kernel."""
    dimensions = f"({', '.join(tensor['shape'])})" if tensor["shape"] else ""
    return f"{tensor['type']}{dimensions} {tensor['name']}"
