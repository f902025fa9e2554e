# SPDX-License-Identifier: Apache-2.0
"""Kernels for devices compute what numpy does; without a barrier, mask or wait they do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Select
from tcsym.index.expr import TRUE, index, var
from tcsym.ir.allocate import allocate, block_bytes
from tcsym.ir.device import Barrier, BeginCopy, CommitCopies, Operand, WaitCopies, held, n_held
from tcsym.ir.loops import Branch, Holds, Kernel, Loop, Node, Store, Value
from tcsym.ir.regions import buffers_used, outline
from tcsym.ir.text import kernel_text, node_text
from tcsym.ir.traverse import grids, map_node, substitute_node, walk
from tcsym.ir.verify import InternalError, verify
from tests.ir.device_kernels import CASES, Case, pipelined
from tests.schedule.execute import execute

GOLDEN = Path(__file__).parent / "golden"
ORDERS = ({}, {"backward": True}, {"shuffle": 3})


def is_right(case: Case) -> bool:
    """At all sizes and orders of threads; AssertionError for what no kernel may do."""
    *_, result = case.kernel.arguments
    for sizes in case.sizes:
        for order in ORDERS:
            arrays = case.arrays(sizes)
            execute(case.kernel, sizes, arrays, unset=(result,), **order)  # type: ignore[arg-type]
            want = case.result(**arrays)
            if not np.allclose(arrays[result], want, case.tolerance, case.tolerance):
                return False
    return True


def fails(case: Case) -> bool:
    try:
        return not is_right(case)
    except AssertionError:
        return True


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    verify(CASES[name].kernel, "device")
    assert is_right(CASES[name])


@pytest.mark.parametrize("name", ["pipelined_3", "row_sums", "reversed_tiles", "instructions_16"])
def test_text(name: str, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.write_text(kernel_text(CASES[name].kernel))
    assert kernel_text(CASES[name].kernel) == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_substitution_reaches_all_of_a_node(name: str) -> None:
    kernel = CASES[name].kernel
    names = [n.variable for n, _ in walk(kernel.body) if isinstance(n, Loop)]
    changed = substitute_node(kernel.body, {n: var(f"new_{n}") for n in names})
    assert substitute_node(changed, {f"new_{n}": var(n) for n in names}) == kernel.body
    rest = re.sub(r"(block|thread|serial) \w+ in", "", node_text(changed))
    assert not any(re.search(rf"\b{n}\b", rest) for n in names)


def test_threads_hold_the_elements_that_the_instructions_say() -> None:
    """Lane 5 is member 1 of group 1. Reference: PTX ISA, fragments of mma."""

    def of_lane_5(operand: Operand, depth: int) -> list[tuple[int | None, ...]]:
        found = [held(operand, depth, index(5), e) for e in range(n_held(operand, depth))]
        return [tuple(x.as_int() for x in at) for at in found]

    for depth in (8, 16):
        assert of_lane_5("target", depth) == [(1, 2), (1, 3), (9, 2), (9, 3)]
    assert of_lane_5("left", 8) == [(1, 1), (9, 1), (1, 5), (9, 5)]
    assert of_lane_5("right", 8) == [(1, 1), (5, 1)]
    left = [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]
    assert of_lane_5("left", 16) == left
    assert of_lane_5("right", 16) == [(2, 1), (3, 1), (10, 1), (11, 1)]


# ---- mutants

Change = Callable[[Node], "Node | None"]


def mutants(kernel: Kernel, applies: Callable[[Node], bool], change: Change) -> Iterator[Kernel]:
    """The kernel with `change` made at one node, for each that it applies to; None drops it."""
    total = 0

    def count(n: Node) -> Node:
        nonlocal total
        total += applies(n)
        return n

    map_node(kernel.body, count)
    for k in range(total):
        seen = -1

        def at(n: Node, k: int = k) -> Node | None:
            nonlocal seen
            seen += applies(n)
            return change(n) if seen == k and applies(n) else n

        yield replace(kernel, body=map_node(kernel.body, at))


def dropped(kernel: Kernel, *kinds: type) -> Iterator[Kernel]:
    return mutants(kernel, lambda n: isinstance(n, kinds), lambda n: None)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("instructions")])
def test_without_a_barrier_threads_race(name: str) -> None:
    """isl finds it, and so does the run."""
    found = list(dropped(CASES[name].kernel, Barrier))
    assert found
    for kernel in found:
        with pytest.raises(InternalError, match="race"):
            verify(kernel, "device")
        assert fails(replace(CASES[name], kernel=kernel)), kernel_text(kernel)


@pytest.mark.parametrize("stages", [2, 3])
def test_without_a_wait_copies_race(stages: int) -> None:
    case = pipelined(stages)
    steps = mutants(
        case.kernel,
        lambda n: isinstance(n, Loop) and n.variable == "ko",
        lambda n: map_node(n, lambda x: None if isinstance(x, WaitCopies | CommitCopies) else x),
    )
    for kernel in (*steps, pipelined(stages, pending=stages - 1).kernel):
        with pytest.raises(InternalError, match="race"):
            verify(kernel, "device")
        assert fails(replace(case, kernel=kernel)), kernel_text(kernel)


def test_copies_may_not_run_further_ahead_than_there_are_stages() -> None:
    case = pipelined(3, ahead=3)
    with pytest.raises(InternalError, match="race"):
        verify(case.kernel, "device")
    assert fails(case)


def test_fewer_copies_on_their_way_than_there_may_be() -> None:
    case = pipelined(4, ahead=2)
    verify(case.kernel, "device")
    assert is_right(case)


def guards(kernel: Kernel) -> Iterator[Kernel]:
    """Without one of the conditions that ragged ends need."""
    yield from mutants(kernel, lambda n: isinstance(n, Branch), lambda n: n.then)  # type: ignore[union-attr]
    yield from mutants(
        kernel,
        lambda n: isinstance(n, Loop) and n.mask is not None,
        lambda n: replace(n, mask=None),  # type: ignore[call-arg, type-var]
    )
    yield from mutants(
        kernel,
        lambda n: isinstance(n, BeginCopy),
        lambda n: replace(n, condition=TRUE),  # type: ignore[call-arg, type-var]
    )

    def unguarded(v: Value) -> Value:
        return v.then if isinstance(v, Select) and isinstance(v.condition, Holds) else v

    yield from mutants(
        kernel,
        lambda n: isinstance(n, Store) and map_node(n, on_value=unguarded) != n,
        lambda n: map_node(n, on_value=unguarded),
    )


@pytest.mark.parametrize("name", CASES)
def test_without_a_guard_threads_leave_memory(name: str) -> None:
    case = CASES[name]
    found = [k for k in guards(case.kernel) if k != case.kernel]
    assert found
    for kernel in found:
        assert fails(replace(case, kernel=kernel)), kernel_text(kernel)


def test_shared_buffers_lie_apart() -> None:
    kernel = CASES["pipelined_3"].kernel
    offsets = {n: o.as_int() for n, o in allocate(kernel).offsets.items()}
    assert offsets == {"P": 0, "Q": 3 * 4 * 4 * 4}
    assert [block_bytes(kernel, region) for region, _ in grids(kernel.body)] == [2 * 3 * 4 * 4 * 4]


def test_a_grid_is_a_region_that_is_told_of_global_memory_alone() -> None:
    (region,) = outline(CASES["pipelined_3"].kernel).regions
    assert region.loop.variable == "bi"
    assert region.numbers == ("M", "N", "K") and region.pointers == ("A", "B", "C")
    assert buffers_used(region.loop) == {"A", "B", "C", "P", "Q", "S"}
