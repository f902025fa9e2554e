"""Naive kernel -> mapped kernel: which loops become threads, register tiles and vectors.

Every nest gets the first leaf schedule that applies: register tile of a contraction, strips of
columns, vector rows, scalar. The passes do the rewriting; this module only orders them, and notes
what was chosen and what kept it from a better choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcsym.loop_ir import Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.options import Options
from tcsym.polyhedral.passes.accumulate import accumulate_privately
from tcsym.polyhedral.passes.allocate import place_allocations, without_allocations
from tcsym.polyhedral.passes.band import band_of, contraction_roles
from tcsym.polyhedral.passes.clamp_rows import clamp_rows
from tcsym.polyhedral.passes.collapse import collapse_outermost
from tcsym.polyhedral.passes.contract_storage import contract_storage
from tcsym.polyhedral.passes.contraction_schedule import (
    contraction_refusal,
    schedule_contraction,
    streams_in_place,
    with_fallback,
)
from tcsym.polyhedral.passes.hoist_conditions import hoist_conditions
from tcsym.polyhedral.passes.loops import find_loop
from tcsym.polyhedral.passes.names import Names
from tcsym.polyhedral.passes.parallelise import parallelise
from tcsym.polyhedral.passes.privatise import privatise
from tcsym.polyhedral.passes.row_block import block_rows
from tcsym.polyhedral.passes.row_schedule import schedule_rows
from tcsym.polyhedral.passes.strip_schedule import schedule_strips, strip_columns
from tcsym.target import Target

ROW_TILES = 4


@dataclass(frozen=True, slots=True)
class Mapped:
    """`notes`: one line a loop nest, the schedule chosen and why not a better one."""

    kernel: Kernel
    notes: tuple[str, ...]


def map_cpu(kernel: Kernel, target: Target, options: Options) -> Mapped:
    """A correct kernel for every naive one, fast where a schedule applies."""
    names, notes = Names.of(kernel), list[str]()
    kernel = replace(kernel, body=hoist_conditions(without_allocations(kernel.body), names))
    kernel = privatise(accumulate_privately(kernel, names))
    for nest in nests(kernel.body):
        kernel = schedule_nest(kernel, nest, target, options, names, notes)
    kernel = clamp_rows(contract_storage(kernel))
    if options.parallelize:
        kernel = parallelise(collapse_outermost(kernel, names))
    return Mapped(place_allocations(kernel), tuple(notes))


def schedule_nest(
    kernel: Kernel, nest: str, target: Target, options: Options, names: Names, notes: list[str]
) -> Kernel:
    """The first leaf schedule that applies: contraction, strips, rows (or scalar)."""
    roles = contraction_roles(kernel, band_of(find_loop(kernel.body, nest)))
    refusal = contraction_refusal(kernel, nest, roles)
    if refusal is not None or roles is None:
        blocked = _in_row_blocks(kernel, nest, target, options, names, notes)
        if blocked is not None:
            return blocked
        notes.append(f"{nest}: no contraction: {refusal}")
        return _without_tile(kernel, nest, target, options, names, notes)
    rows = options.register_rows or target.register_rows
    kernel, copy = with_fallback(kernel, nest, 2 * rows, roles, names)
    kernel = schedule_contraction(kernel, nest, roles, target, options, names)
    notes.append(f"{nest}: contraction, columns {roles.columns}, rows {roles.rows}")
    if copy is not None:
        kernel = _few_rows(kernel, copy, target, options, names, notes)
    return kernel


def _in_row_blocks(
    kernel: Kernel, nest: str, target: Target, options: Options, names: Names, notes: list[str]
) -> Kernel | None:
    """Several nests over shared rows, some of them contractions: each on blocks of rows."""
    if not band_of(find_loop(kernel.body, nest)).loops:
        return None
    rows = options.register_rows or target.register_rows
    blocked = block_rows(kernel, nest, ROW_TILES * rows, names)
    if blocked is None:
        return None
    kernel = blocked.kernel
    notes.append(f"{nest}: blocks of {ROW_TILES * rows} rows over {len(blocked.nests)} nests")
    for inner in blocked.nests:
        roles = contraction_roles(kernel, band_of(find_loop(kernel.body, inner)))
        if inner in blocked.contractions and not contraction_refusal(kernel, inner, roles):
            assert roles is not None
            kernel = schedule_contraction(kernel, inner, roles, target, options, names)
            notes.append(f"{inner}: contraction, columns {roles.columns}, rows {roles.rows}")
        else:
            kernel = _without_tile(kernel, inner, target, options, names, notes)
    return kernel


def _few_rows(
    kernel: Kernel, nest: str, target: Target, options: Options, names: Names, notes: list[str]
) -> Kernel:
    """A contraction with too few rows to pay for panels: operands in place, or no tile."""
    roles = contraction_roles(kernel, band_of(find_loop(kernel.body, nest)))
    if roles is None or not streams_in_place(kernel, roles):
        return _without_tile(kernel, nest, target, options, names, notes)
    in_place = replace(options, pack=False, register_rows=min(4, options.register_rows or 4))
    notes.append(f"{nest}: contraction in place, columns {roles.columns}, rows {roles.rows}")
    return schedule_contraction(kernel, nest, roles, target, in_place, names)


def _without_tile(
    kernel: Kernel, nest: str, target: Target, options: Options, names: Names, notes: list[str]
) -> Kernel:
    columns = strip_columns(kernel, nest, target, options)
    if columns is None:
        return schedule_rows(kernel, nest, target, options, names, notes)
    notes.append(f"{nest}: strips along {columns}")
    return schedule_strips(kernel, nest, columns, target, names)


def nests(node: Node) -> tuple[str, ...]:
    """Outermost loops that need not run in order, below the ones that do."""
    match node:
        case Loop():
            return nests(node.body) if node.order == "sequential" else (node.variable,)
        case Block(body):
            return tuple(v for x in body for v in nests(x))
        case Branch(_, a, b):
            return nests(a) + (() if b is None else nests(b))
        case Allocate(_, body):
            return nests(body)
        case _:
            return ()
