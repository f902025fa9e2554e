# SPDX-License-Identifier: Apache-2.0
"""Random nests, and random plans for them: legal or not, whoever applies them has to tell."""

from __future__ import annotations

import random

from msgspec.structs import replace

from tcsym.compiler import analyse as programs
from tcsym.index.expr import TRUE
from tcsym.ir.loops import Block, Kernel, Loop
from tcsym.mapping.map_cpu import in_kernel, map_nest
from tcsym.mapping.nest import Nest, analyse
from tcsym.mapping.plan import Refused, Version
from tcsym.mapping.text import parse
from tcsym.mapping.trees import unmarked
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.target.machine import Machine

LANES = 4


def program(r: random.Random) -> str:
    """A product with permuted operands, sums of rows, or a map."""
    return r.choice((_product, _product, _rows, _map, _window))(r)


def _dims(r: random.Random, names: str) -> str:
    return ",".join(r.sample(names, len(names)))


def _head(name: str, dims: str) -> str:
    return f"float({dims.upper()}) {name}"


def _product(r: random.Random) -> str:
    batch = r.choice(("", "", "b", "bc"))
    sums = r.choice(("k", "k", "kl"))
    a, b = _dims(r, f"{batch[:1]}m{sums}"), _dims(r, f"{batch}n{sums}")
    c = _dims(r, f"{batch}mn")
    after = r.choice(("", "", f"R({c}) = fmax(R({c}) * 2 + d(n), 1)"))
    d = ", float(N) d" if after else ""
    head = f"{_head('P', a)}, {_head('Q', b)}{d}"
    return f"def f({head}) -> (R) {{ R({c}) +=! P({a}) * Q({b})\n {after} }}"


def _rows(r: random.Random) -> str:
    x, s = _dims(r, "mn" + r.choice(("", "b"))), r.choice(("m", "n"))
    op = r.choice(("+=!", "max=!"))
    again = r.choice(
        ("", f"T({s}) +=! X({x}) * X({x})", f"Y({x}) = X({x}) - S({s})\n T({s}) max=! Y({x})")
    )
    outs = "S" + (", T" if "T(" in again else "") + (", Y" if "Y(" in again else "")
    return f"def f({_head('X', x)}) -> ({outs}) {{ S({s}) {op} X({x})\n {again} }}"


def _map(r: random.Random) -> str:
    x = _dims(r, "mnb")
    y, w = _dims(r, "mnb"), r.choice(("m", "n", "m,n", "b,m"))
    return f"def f({_head('X', x)}, {_head('W', w)}) -> (Y) {{ Y({y}) = X({x}) * W({w}) + 1 }}"


def _window(r: random.Random) -> str:
    x = r.choice(("c,w+k", "w+k,c", "w+k"))
    a, y = _dims(r, "okc" if "c" in x else "ok"), _dims(r, "ow")
    image = x.replace("w+k", "v")
    head = f"{_head('X', image)}, {_head('A', a)}"
    return f"def f({head}) -> (Y) {{ Y({y}) +=! X({x}) * A({a}) where w in 0:V-K+1 }}"


def naive(source: str) -> Kernel:
    (found,) = programs(source).values()
    kernel = schedule_program(found, Options(), {}).kernel
    return replace(kernel, body=without_allocations(kernel.body))


def nests(kernel: Kernel) -> list[Nest]:
    """Those that directives serve."""
    out = list[Nest]()
    tops = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
    for x in tops:
        if isinstance(x, Loop):
            try:
                buffers = {b.name: b for b in kernel.buffers}
                out.append(in_kernel(analyse(x, buffers, frozenset(kernel.sizes)), kernel))
            except Refused:
                pass
    return out


def plan(r: random.Random, nest: Nest) -> str:
    """A plan of the nest's own loops; what it stages, orders and combines is drawn."""
    out, loops, band = list[str](), dict[str, list[str]](), list(nest.names)
    if len(band) > 1 and r.random() < 0.3:
        k = r.randrange(len(band) - 1)
        out.append(f"merge {band[k]} {band.pop(k + 1)}")
    sums = [x.variable for x in nest.inner if x.order == "reduction"]
    inside = [x.variable for x in nest.inner]
    if inside == sums and len(sums) == 1 and r.random() < 0.4:
        whole = f"{sums[0]}.{r.choice(('part', 'row'))}"
        out.append(f"split {sums[0]} part row:{r.choice((1, 2, 3, 5))}")
        out.append(f"combine {whole} at {band[0]}")
        loops[whole] = [whole]
        band = [f"{v}.parts" for v in band]
        inside = sums = [f"{sums[0]}.{'row' if whole.endswith('part') else 'part'}"]
    wide = r.choice([*band, *(v for v in inside if "." not in v), ""])
    for v in band:
        outer, points = _parts(r, v == wide, r.choice(sorted(nest.sizes)))
        if outer or points:
            out.append(" ".join(("split", v, *(outer or ["tile"]), *points)))
        loops[v] = (
            [f"{v}.{p.partition(':')[0]}" for p in outer or ["tile"]] if outer or points else [v]
        )
    inner = list[str]()
    for v in inside:
        if v == wide:
            end = r.choice(("", "end=peel", "end=mask"))
            reg = r.choice(("", "reg:2"))
            out.append(f"split {v} tile {reg} lane:{LANES} {end}")
            inner.append(f"{v}.tile")
            if v in sums:
                out.append(f"combine {v}")
        else:
            inner.append(v)
            if r.random() < 0.5:
                out.append(f"split {v} unroll:{r.choice((2, 4))}")
    order = _shuffled(r, list(loops.values()))
    if len(out) > 0 or r.random() < 0.5:
        out.append("order " + " ".join(order))
    if r.random() < 0.5:
        out.append(_stage(r, nest, order, inner, out))
    return "\n".join(out)


def _parts(r: random.Random, is_wide: bool, size: str) -> tuple[list[str], list[str]]:
    outer = r.choice(
        ([], ["tile"], ["block", f"tile:{r.choice((1, 2, 3))}"], ["panel", f"tile:{size}/3"])
    )
    points = [f"reg:{r.choice((1, 2, 3, 4))}"] if r.random() < 0.6 else []
    if is_wide:
        points.append(f"lane:{LANES}")
    if outer and not points and len(outer) == 1:
        points = ["reg:2"]
    end = r.choice(("", "", "end=half", *["end=peel"] * is_wide)) if points else ""
    end = "end=overlap" if end == "end=half" and outer == ["tile"] and r.random() < 0.2 else end
    return (outer or (["tile"] if points else [])), [*points, *([end] if end else [])]


def _shuffled(r: random.Random, loops: list[list[str]]) -> list[str]:
    """In any order in which the parts of a loop are from outside in."""
    left, out = [list(x) for x in loops], list[str]()
    while any(left):
        k = r.choice([k for k, x in enumerate(left) if x])
        out.append(left[k].pop(0))
    return out


def _stage(r: random.Random, nest: Nest, order: list[str], inner: list[str], out: list[str]) -> str:
    """An operand at some loop, by the loops inside that move it, points last."""
    wide = next((x.split()[1] for x in out if "lane:" in x), "")
    uses = [a for s in nest.statements for a in s.accesses]
    rows = [a for a in uses if any(wide in e.variables() for e in a.subscripts[:-1])]
    is_turned = bool(rows) and r.random() < 0.5
    a, at = r.choice(rows if is_turned else uses), r.choice(order)
    inside = [*order[order.index(at) + 1 :], *inner]
    moves = [v for v in inside if any(v.split(".")[0] in e.variables() for e in a.subscripts)]
    points = [
        f"{line.split()[1]}.{p.partition(':')[0]}"
        for line in out
        if line.startswith("split")
        for p in line.split()[2:]
        if p.partition(":")[0] in ("reg", "lane")
        and any(line.split()[1] in e.variables() for e in a.subscripts)
    ]
    points.sort(key=lambda p: p.endswith(".lane"))
    dims = r.sample(moves, len(moves)) + points or [at]
    return f"stage {a.buffer} at {at} order {' '.join(dims)}{' as turned' * is_turned}"


def applied(kernel: Kernel, nest: Nest, text: str, machine: Machine) -> Kernel:
    """The kernel with the nest mapped so. Raises `Refused`."""
    names = Names.of(kernel)
    mapped = map_nest(kernel, nest, [Version("drawn", TRUE, parse(text))], machine, names)
    return place_allocations(unmarked(mapped))


def sizes(r: random.Random, names: tuple[str, ...]) -> dict[str, int]:
    """Ragged ones, and 0 and 1. A window lies inside of what it reads."""
    found = {n: r.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 13)) for n in names}
    if "V" in found:
        found["V"] += max(0, found["K"] - 1)
    return found
