# SPDX-License-Identifier: Apache-2.0
"""`apply`: a kernel on arrays of Dask -> arrays of Dask, cut as its index notation says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np

from tcsym.dask.axes import Place
from tcsym.dask.blocks import Blocks, blocks_of
from tcsym.dask.parts import Part, next_part, with_sums_apart
from tcsym.dask.task import Along, Task, inside_of, made, span_of
from tcsym.frontend.program import Program, statements
from tcsym.index.values import evaluate
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.module import Module
from tcsym.process.forks import inside
from tcsym.process.recursion import depth_checked
from tcsym.runtime.arguments import bind, match_arguments
from tcsym.runtime.arrays import numpy_array, numpy_view
from tcsym.runtime.packing import packed
from tcsym.runtime.plan import CallPlan, Parameter
from tcsym.runtime.view import View

_COMBINED = {"+=": np.add, "*=": np.multiply, "min=": np.minimum, "max=": np.maximum}


def apply(
    kernel: Kernel | Module,
    /,
    *args: Any,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = 1,
    **kwargs: Any,
) -> Any:
    """A kernel on chunked arrays: the same values, lazily, block by block.

    Arrays of Dask keep their chunks where an index of the text runs along them: a left index makes
    blocks of results, a sliding one reads over their edges, a reduced one makes partial results
    that are combined in a tree, by the operator of the statement. Dimensions of which all is needed
    at every point (tables that are gathered from, steps of `for`) become one chunk. Other arrays
    and numbers are taken as one chunk.
    What the kernel updates is a result, behind the others, as of `kernel.functional()`.
    sizes: values of free sizes.
    threads: of one block; Dask runs blocks beside each other. None: as `tcsym.get_num_threads()`
        of the worker says.
    Returns one array, or a named tuple in declaration order. Errors: at once those of a call; what
    depends on data when it is computed.
    """
    if isinstance(kernel, Module):
        kernel = kernel._only
    return _apply(kernel.functional(), args, kwargs, sizes, threads)


@inside
@depth_checked
def _apply(kernel: Kernel, args: Any, kwargs: Any, sizes: Any, threads: int | None) -> Any:
    plan = kernel._plan
    for s in plan.given_sizes:
        message = f"`{s.name}` is a size parameter, with which kernels of chunks are not made"
        hint = "bind it to a dimension of an input, or write its number into the text"
        raise plan.error("call", message, s.span, hint)
    given = match_arguments(plan, args, kwargs)
    for p, x in zip(plan.inputs, given):
        _require_known(plan, p, x)
    bound = bind(plan, given, sizes, partial(_view, plan))
    arrays = {
        p.name: x if isinstance(x, da.Array) else da.from_array(numpy_array(view), chunks=-1)
        for p, x, view in zip(plan.inputs, given, bound.views)
    }
    run = _Run(kernel, dict(zip(plan.sizes, bound.sizes)), threads, arrays)
    return packed(plan.output_names, run.results())


def _require_known(plan: CallPlan, p: Parameter, x: Any) -> None:
    if isinstance(x, da.Array) and any(map(math.isnan, x.shape)):
        axis = next(d for d, n in enumerate(x.shape) if math.isnan(n))
        hint = f"let Dask find them: `{p.name}.compute_chunk_sizes()`"
        message = f"the size of `{p.name}` on axis {axis} is not known before it is computed"
        raise plan.error("size", message, p.span, hint)


def _view(plan: CallPlan, x: Any) -> View:
    if isinstance(x, da.Array):  # as a block will be
        return numpy_view(np.broadcast_to(np.empty((), x.dtype), x.shape))
    return plan.device.view_of(x)


class _Run:
    """Parts of a program, one after the other, on the tensors that are there."""

    def __init__(
        self, kernel: Kernel, sizes: dict[str, int], threads: int | None, arrays: dict[str, Any]
    ) -> None:
        self.sizes, self.threads, self.arrays = sizes, threads, arrays
        self.settings = kernel.settings
        self.program = with_sums_apart(kernel.program, self._is_chunked)

    def results(self) -> tuple[Any, ...]:
        end = 0
        while end < len(self.program.body):
            part = next_part(self.program, end, self._is_chunked)
            self._run(part)
            end = part.end
        return tuple([self.arrays[t.name] for t in self.program.outputs])

    def _is_chunked(self, place: Place) -> bool:
        array = self.arrays.get(place[0])
        return array is not None and array.numblocks[place[1]] > 1

    def _run(self, part: Part) -> None:
        program, source = (
            part.program,
            dict(zip((t.name for t in part.program.inputs), part.sources)),
        )
        declared = self.settings.sizes
        blocks = blocks_of(
            part, self.sizes, lambda p: self.arrays[source[p[0]]].chunks[p[1]], declared
        )
        made_blocks = self._tasks(program, blocks, source)
        for k, t in enumerate(program.outputs):
            self.arrays[t.name] = self._result(program, blocks, k, made_blocks)

    def _tasks(self, program: Program, blocks: Blocks, source: Mapping[str, str]) -> Any:
        """An array with a tuple of results for each block."""
        own = blocks.program
        known = {c.start: ("start", k) for k, c in enumerate(blocks.cuts)}
        known |= {c.count: ("count", k) for k, c in enumerate(blocks.cuts)}
        task = Task(
            made(own, self.settings),
            tuple([self._along(program, blocks, t.name) for t in program.inputs]),
            tuple([(n, self.sizes[n]) for n in own.free_sizes if n not in known]),
            tuple([(n, known[n][1]) for n in own.free_sizes if known.get(n, "c")[0] == "start"]),
            tuple([(n, known[n][1]) for n in own.free_sizes if known.get(n, "s")[0] == "count"]),
            self.threads,
        )
        given: list[Any] = []
        for k, cut in enumerate(blocks.cuts):
            table = np.array(cut.blocks, np.int64)
            given += [da.from_array(table, chunks=(1, 2)), (_label(k), f"pair{k}")]
        for t, along in zip(program.inputs, task.inputs):
            array = self.arrays[source[t.name]]
            labels: list[str] = []
            for d, a in enumerate(along):
                labels.append(f"{t.name}{d}" if a is None else _label(a[0]))
                if a is None:
                    array = array.rechunk({d: -1})
                else:
                    spans = [inside_of(span_of(b, a), a[4]) for b in blocks.cuts[a[0]].blocks]
                    array = _in_windows(array, d, spans)
            given += [array, tuple(labels)]
        n = len(blocks.cuts)
        meta = np.empty((0,) * n, object)
        chunks = {_label(k): (1,) * len(c.blocks) for k, c in enumerate(blocks.cuts)}
        return da.blockwise(
            task, tuple(map(_label, range(n))), *given, adjust_chunks=chunks, align_arrays=False,
            concatenate=None, dtype=object, meta=meta, name=None, token=f"{program.name}-blocks",
        )  # fmt: skip

    def _along(self, program: Program, blocks: Blocks, name: str) -> tuple[Along | None, ...]:
        found: list[Along | None] = []
        for d, extent in enumerate(program.tensor(name).shape):
            k = next((k for k, c in enumerate(blocks.cuts) if (name, d) in c.windows), None)
            if k is None:
                found.append(None)
            else:
                window = blocks.cuts[k].windows[name, d]
                found.append((k, *window, evaluate(extent, self.sizes)))
        return tuple(found)

    def _result(self, program: Program, blocks: Blocks, k: int, tuples: Any) -> Any:
        t, n = program.outputs[k], len(blocks.cuts)
        along = self._along(program, blocks, t.name)
        sums = [
            c for c, cut in enumerate(blocks.cuts)
            if any(s.target == t.name and s.name in cut.axis.sums for s in statements(program.body))
        ]  # fmt: skip
        dtype = blocks.program.outputs[k].dtype.numpy
        labels = [f"whole{d}" if a is None else _label(a[0]) for d, a in enumerate(along)]
        extents = [evaluate(e, self.sizes) for e in t.shape]
        new = {x: extents[d] for d, x in enumerate(labels) if along[d] is None}
        chunks = {
            _label(a[0]): tuple([_length(b, extents[d]) for b in blocks.cuts[a[0]].blocks])
            for d, a in enumerate(along)
            if a is not None
        }
        chunks |= {_label(c): (1,) * len(blocks.cuts[c].blocks) for c in sums}
        out = (*map(_label, sums), *labels)
        found = da.blockwise(
            partial(_picked, k=k, n_sums=len(sums)), out, tuples, tuple(map(_label, range(n))),
            new_axes=new, adjust_chunks=chunks, align_arrays=False, concatenate=None, dtype=dtype,
            meta=np.empty((0,) * len(out), dtype), token=f"{program.name}-{t.name}",
        )  # fmt: skip
        if sums:
            op = next(s.op for s in statements(program.body) if s.target == t.name)
            combine = partial(_combined, op=op)
            found = da.reduction(
                found, combine, combine, axis=tuple(range(len(sums))), dtype=dtype,
                meta=np.empty((0,) * len(labels), dtype), name=f"{program.name}-{t.name}",
            ).astype(t.dtype.numpy)  # fmt: skip
        return found


def _label(cut: int) -> str:
    return f"cut{cut}"


def _picked(results: tuple[Any, ...], *, k: int, n_sums: int) -> Any:
    """One result of a block; of partial results, one along each axis that is reduced over."""
    return results[k].reshape((1,) * n_sums + results[k].shape)


def _combined(x: Any, axis: Any, keepdims: bool, *, op: str) -> Any:
    combine: Any = _COMBINED[op]
    return combine.reduce(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def _length(block: tuple[int, int], extent: int) -> int:
    first = max(block[0], 0)
    return max(min(sum(block), extent), first) - first


def _in_windows(x: Any, d: int, spans: Sequence[tuple[int, int]]) -> Any:
    """The array with these parts of a dimension as its chunks; they may overlap."""
    lengths = tuple([last - first for first, last in spans])
    ends = list(accumulate(lengths))
    if [last for _, last in spans] == ends and ends[-1] == x.shape[d]:
        return x.rechunk({d: lengths})
    whole = [slice(None)] * x.ndim
    parts = [x[(*whole[:d], slice(first, last), *whole[d + 1 :])] for first, last in spans]
    return da.concatenate(parts, axis=d).rechunk({d: lengths})
