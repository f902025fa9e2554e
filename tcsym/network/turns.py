# SPDX-License-Identifier: Apache-2.0
"""Steps that do not need each other -> turns, and whether it pays to run those of a turn at once.

Tensors of steps in one turn never share storage, so that may need more memory than steps one after
the other; a plan has turns of several steps where it does not, or where it is asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcsym.frontend.program import For, If, Item
from tcsym.network.steps import Step
from tcsym.sizes.work import loop_count, work_of

Turns = tuple[tuple[int, ...], ...]
# Of a vector unit in a cycle; a thread is worth `Options.min_work_per_thread` sixteenths of one.
OPERATIONS = 8


def one_by_one(steps: Sequence[Step]) -> Turns:
    return tuple((k,) for k in range(len(steps)))


def at_once(steps: Sequence[Step]) -> tuple[tuple[Step, ...], Turns]:
    """Steps in an order by turns: each is in the first after those that it reads from."""
    turn_of: dict[str, int] = {}
    found: list[list[Step]] = []
    for step in steps:
        turn = max((turn_of[t] + 1 for t in step.reads if t in turn_of), default=0)
        turn_of |= dict.fromkeys(step.writes, turn)
        found += [[] for _ in range(turn + 1 - len(found))]
        found[turn].append(step)
    ordered = tuple(step for own in found for step in own)
    place = {step.name: k for k, step in enumerate(ordered)}
    return ordered, tuple(tuple(place[s.name] for s in own) for own in found)


def tasks_of(
    steps: Sequence[Step], sizes: Mapping[str, int], threads: int, grain: int
) -> tuple[int, int]:
    """On how many threads these steps are best run at once, and the estimated time of all.

    1: one after the other, each on all threads. Times are in sixteenths of a cycle. grain: for
    which a thread pays. A loop in time gives threads no more than one of its iterations at a time.
    """
    alone = [_time(s.program.body, sizes, 1, grain) for s in steps]
    tasks = min(threads, len(steps))
    if tasks < 2:
        return 1, int(sum(alone))
    in_turn = sum(_time(s.program.body, sizes, threads, grain) for s in steps)
    longest = max(sum(alone[k::tasks]) for k in range(tasks)) + grain
    return (tasks if longest < in_turn else 1), int(sum(alone))


def _time(items: Sequence[Item], sizes: Mapping[str, int], threads: int, grain: int) -> float:
    return sum(_item_time(item, sizes, threads, grain) for item in items)


def _item_time(item: Item, sizes: Mapping[str, int], threads: int, grain: int) -> float:
    match item:
        case For(body=body):
            n, inside = loop_count(item, sizes)
            return n * _time(body, inside, threads, grain)
        case If(_, then, orelse):
            return max(_time(x, sizes, threads, grain) for x in (then, orelse))
        case _:
            time = work_of(item, sizes) * 16 / OPERATIONS
            return time / min(threads, max(1, time // grain))
