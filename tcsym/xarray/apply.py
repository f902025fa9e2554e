# SPDX-License-Identifier: Apache-2.0
"""`apply`: a kernel on DataArrays -> DataArrays with the dimensions that indices run along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xarray

from tcsym.errors import OptionError
from tcsym.frontend.program import Program, reads, statements
from tcsym.index.expr import Index, var
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.module import Module
from tcsym.runtime.arguments import match_arguments
from tcsym.runtime.packing import packed

Source = tuple[str, int]  # an input and one of its dimensions


def apply(
    kernel: Kernel | Module,
    /,
    *args: Any,
    dims: Mapping[str, Sequence[str]] | None = None,
    sizes: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> Any:
    """A kernel on DataArrays, by position: their data goes in, in memory or chunked (`tcsym.dask`).

    A dimension of a result is called as that of the input which its index runs along, and has its
    coordinates where both are subscripted by the index alone. Dimensions that inputs share by name
    must agree in coordinates.
    dims: names for results where there are none, as for free sizes, or to have others.
    sizes: values of free sizes.
    Returns one DataArray, or a named tuple in declaration order. Errors: those of a call;
    OptionError for a dimension without a name; those of `xarray.align`.
    """
    found = kernel if isinstance(kernel, Kernel) else kernel._only
    program = found.program
    given = dict(zip((t.name for t in program.inputs), match_arguments(found._plan, args, kwargs)))
    arrays = {n: x for n, x in given.items() if isinstance(x, xarray.DataArray)}
    xarray.align(*arrays.values(), join="exact", copy=False)
    data = [x.data if isinstance(x, xarray.DataArray) else x for x in given.values()]
    if any(x.chunks is not None for x in arrays.values()):
        from tcsym.dask import apply as apply_in_blocks

        results = apply_in_blocks(found, *data, sizes=sizes)
    else:
        results = found(*data, sizes=sizes)
    each = results if isinstance(results, tuple) else (results,)
    named = [_named(x, program, t.name, arrays, dims or {}) for x, t in zip(each, program.outputs)]
    return packed(tuple(t.name for t in program.outputs), tuple(named))


def _named(
    x: Any,
    program: Program,
    name: str,
    arrays: Mapping[str, xarray.DataArray],
    dims: Mapping[str, Sequence[str]],
) -> xarray.DataArray:
    along = [_source(program, name, d, arrays) for d in range(x.ndim)]
    names = [None if a is None else arrays[a[0][0]].dims[a[0][1]] for a in along]
    names = list(dims[name]) if name in dims else names
    if None in names or len({*names}) < len(names):
        message = f"{program.name}: dimensions of result `{name}` would be {_shown(names)}"
        raise OptionError(message, hint=f'name them: `dims={{"{name}": (...)}}`')
    coordinates = {}
    for label, a in zip(names, along):
        own = arrays[a[0][0]].coords if a is not None and a[1] else {}
        source = None if a is None else arrays[a[0][0]].dims[a[0][1]]
        if source in own:
            coordinates[label] = (label, own[source].data)
    return xarray.DataArray(x, dims=names, coords=coordinates, name=name)


def _shown(names: Sequence[Any]) -> str:
    return f"({', '.join('?' if n is None else str(n) for n in names)})"


def _source(
    program: Program, name: str, d: int, arrays: Mapping[str, Any]
) -> tuple[Source, bool] | None:
    """The dimension of a DataArray that one of a result runs along, and whether point by point."""
    extent = program.tensor(name).shape[d]
    found: dict[bool, Source] = {}
    for (source, k), is_same in _sources(program, name, d, set()):
        if source in arrays:
            same = is_same and program.tensor(source).shape[k] == extent
            found.setdefault(same, (source, k))
    return next(((found[same], same) for same in (True, False) if same in found), None)


def _sources(
    program: Program, name: str, d: int, seen: set[Source]
) -> Iterator[tuple[Source, bool]]:
    """Dimensions of inputs that a dimension runs along, and whether they have the same index."""
    if (name, d) in seen:
        return
    seen.add((name, d))
    if any(t.name == name for t in program.inputs):
        yield (name, d), True
    for s in statements(program.body):
        if s.target != name or s.subscripts[d] not in [var(r.variable) for r in s.walked]:
            continue
        for read in (r for e in s.expressions for r in reads(e)):
            for k, e in enumerate(read.subscripts):
                if isinstance(e, Index) and s.subscripts[d].variables() & e.variables():
                    for source, is_same in _sources(program, read.tensor, k, seen):
                        yield source, is_same and e == s.subscripts[d]
