# SPDX-License-Identifier: Apache-2.0
"""Windows over an image that each term converts -> over a copy of it, converted once.

    Y(n,y,x,o) += float(X(n,y+i,x+j,c)) * float(F(i,j,c,o))
->  Y(n,y,x,o) += X'(n,y+i,x+j,c) * float(F(i,j,c,o))      X'(n,u,v,c) = float(X(n,u,v,c))

A register tile reads the image as it lies, element by element, and would convert each for every
tile of output channels and every point of the window. Images whose windows slide along memory are
converted in vectors, in panels or as they are loaded, unless the target has no masks for short
elements: a copy then saves the tile. Dot products convert nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Cast, Read, Select, dtype_of
from tcsym.index.expr import TRUE, ZERO, Condition, Index, all_of, ge, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    conditional,
)
from tcsym.ir.packed import available
from tcsym.ir.traverse import map_node, subvalues, walk
from tcsym.mapping.dot_terms import dot_term
from tcsym.schedule.analysis.access import accesses, value_variables
from tcsym.schedule.analysis.band import Band, band_of, reductions
from tcsym.schedule.analysis.casts import under_casts
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.operands import widened_terms
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.stage.copy_operand import depend_on_sizes
from tcsym.schedule.stage.pack_windows import PackedWindows, with_filled
from tcsym.schedule.stage.window_sums import Side, side_of, slides_along


def convert_windows(kernel: Kernel, nest: str, setting: Setting) -> PackedWindows | None:
    """The nest with the images that are worth it converted before; its loops keep their names."""
    kernel, before = widened_terms(kernel, nest), list[str]()
    band = band_of(find_loop(kernel.body, nest))
    if not band.loops or any(isinstance(x, Branch) for x, _ in walk(band.body)):
        return None
    written = {a.buffer for a in accesses(band.body) if a.written}
    found: dict[Cast, tuple[Side, Condition]] = {}
    for x, around in reductions(band.body):
        if depend_on_sizes(kernel, around) and not _is_dot(x, band, around, setting):
            for v in _conversions(x):
                side = side_of(kernel, v, (*band.loops, *around))
                if side is None or side.read.tensor in written:
                    continue
                slides = any(slides_along(s, band, around) for s in side.read.subscripts)
                if slides and _pays(side, band, around, setting):
                    found[v] = side, _reads(kernel, side, (*band.loops, *around))
    for v, (side, reads) in found.items():
        kernel = _copied(kernel, nest, v, side, reads, setting, before)
    return PackedWindows(kernel, tuple(before)) if before else None


def _conversions(x: Update) -> tuple[Cast, ...]:
    """Of elements that every term reads, to longer ones."""
    values = tuple(subvalues(x.value))
    if any(isinstance(v, Select) for v in values):
        return ()
    casts = dict.fromkeys(v for v in values if isinstance(v, Cast) and not v.exact)
    inner = {v.operand for v in casts}
    return tuple(
        v for v in casts if v not in inner and isinstance(under_casts(v), Read) and _is_wider(v)
    )


def _is_wider(v: Cast) -> bool:
    return v.dtype.bytes > dtype_of(under_casts(v)).bytes


def _is_dot(x: Update, band: Band, around: tuple[Loop, ...], setting: Setting) -> bool:
    sums = frozenset(y.variable for y in around)
    have = available(setting.machine)
    return any(dot_term(x, v, sums, have) is not None for v in band.variables)


def _pays(side: Side, band: Band, around: tuple[Loop, ...], setting: Setting) -> bool:
    """Other loops read the image, too, element by element; or its vectors would need masks."""
    if slides_along(side.read.subscripts[-1], band, around):
        return side.read.dtype.bits < 32 and not setting.machine.has_masks
    return bool(set(band.variables) - value_variables(side.read))


def _reads(kernel: Kernel, side: Side, loops: tuple[Loop, ...]) -> Condition:
    """There are elements to read: where there are none, a temporary may not be filled either."""
    if kernel.buffer(side.read.tensor).space == "argument":
        return TRUE
    extents = (extent(x) for x in loops)
    return all_of(ge(n, 1) for n in extents if n.variables() <= frozenset(kernel.sizes))


def _copied(
    kernel: Kernel,
    nest: str,
    v: Cast,
    side: Side,
    reads: Condition,
    setting: Setting,
    before: list[str],
) -> Kernel:
    """before: gets the outermost loops of the copy, which is made where `reads` holds."""
    name = setting.names.fresh(f"{side.read.tensor}_wide")
    loops = [(setting.names.fresh("u"), a) for a in side.kept]
    at: dict[int, Index] = {id(a): var(u) for u, a in loops}
    element = side.element(tuple(at.get(id(a), ZERO) + a.low for a in side.axes))
    node: Node = Store(name, tuple(at.values()), element, name)
    for u, a in reversed(loops):
        node = Loop(u, ZERO, a.n, node, "serial", "parallel")
    node = conditional(reads, node)
    new = Read(name, tuple(a.subscript - a.low for a in side.kept), v.dtype)

    def value(y: Value) -> Value:
        return new if y == v else y

    body = replace_loop(kernel.body, nest, lambda y: map_node(y, None, value))
    buffer = Buffer(name, v.dtype, tuple(a.n for a in side.kept), "arena")
    kernel = replace(kernel, body=body)
    return with_filled(kernel, nest, buffer, node, setting.names, before)
