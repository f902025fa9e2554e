# SPDX-License-Identifier: Apache-2.0
"""Program -> the kernels that it runs one after the other, each a program of its own.

A step is what the proved schedule has in one nest of loops: statements that are fused stay
together. A tensor is written by one step, and read by those behind it, so its lifetime is a range
of steps. Steps stand in an order that keeps few bytes alive: of those that may run next, the one
that ends most lifetimes goes first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Item, Program, Role, Tensor, indices_in, reads, statements
from tcsym.frontend.program_json import programs_to_json
from tcsym.polyhedral.tree import Sequence as InOrder
from tcsym.polyhedral.tree import Tree, leaves


class Step(Struct, frozen=True):
    """One kernel. `reads` and `writes`: tensors of the whole program, in declaration order; what it
    updates is among both."""

    program: Program
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.program.name


def steps_of(program: Program, tree: Tree) -> tuple[Step, ...]:
    """The steps by a proved schedule of the program."""
    groups = _ordered(program, _groups(program, tree))
    return tuple(_step(program, groups, k) for k in range(len(groups)))


# ---- which statements run together

Group = tuple[Item, ...]


def _groups(program: Program, tree: Tree) -> list[Group]:
    """Items of one nest, or that write one tensor, with all that stands between them."""
    nests = tree.children if isinstance(tree, InOrder) else (tree,)
    nests_of: dict[str, list[int]] = {}  # of all parts: `S0.init`, `S0.old`
    for k, nest in enumerate(nests):
        for name, _ in leaves(nest):
            nests_of.setdefault(name.partition(".")[0], []).append(k)
    spans: list[tuple[int, int]] = []
    of_tensor: dict[str, list[int]] = {}
    touching: dict[str, list[int]] = {t.name: [] for t in program.inouts}
    for item in program.body:
        own = [k for s in statements((item,)) for k in nests_of.get(s.name, ())]
        if not own:
            return [program.body]  # the schedule is of another program
        spans.append((min(own), max(own)))
        for s in statements((item,)):
            of_tensor.setdefault(s.target, []).extend(own)
        read, written = touched((item,))
        for name in touching.keys() & (read | written):  # what reads before a write stays with it
            touching[name] += own
            if name in written:
                of_tensor[name] = list(touching[name])
    joined = _joined([*spans, *((min(x), max(x)) for x in of_tensor.values())])
    found: dict[tuple[int, int], list[Item]] = {span: [] for span in joined}
    for item, (first, _) in zip(program.body, spans, strict=True):
        found[next(s for s in joined if s[0] <= first <= s[1])].append(item)
    return [tuple(items) for items in found.values() if items]


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges without those that overlap, which become one."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((first, last))
    return out


def _ordered(program: Program, groups: list[Group]) -> list[Group]:
    """An order that keeps what is needed apart; of several, the one that ends most lifetimes."""
    found = [touched(g) for g in groups]
    makers = {t: k for k, (_, written) in enumerate(found) for t in written}
    needs = [{makers[t] for t in read if t in makers} - {k} for k, (read, _) in enumerate(found)]
    kept = {t.name for t in program.outputs}
    out: list[int] = []
    while len(out) < len(groups):
        left = [k for k in range(len(groups)) if k not in out]
        ready = [k for k in left if needs[k] <= {*out}]

        def ends(k: int, left: list[int] = left) -> int:
            others = {t for x in left if x != k for t in found[x][0]} | kept
            return sum(t in makers and t not in others for t in found[k][0])

        out.append(max(ready, key=lambda k: (ends(k), -k)))
    return [groups[k] for k in out]


def touched(items: Group) -> tuple[set[str], set[str]]:
    """Tensors that are read, and that are written."""
    read: set[str] = set()
    written: set[str] = set()
    for s in statements(items):
        written.add(s.target)
        for e in s.expressions:
            read |= {r.tensor for r in reads(e)}
    return read, written


# ---- a group as a program


def _step(program: Program, groups: list[Group], k: int) -> Step:
    items = groups[k]
    read, written = touched(items)
    later = {t for g in groups[k + 1 :] for t in touched(g)[0]}
    later |= {t.name for t in program.outputs}
    updated = {t.name for t in program.inouts} & written
    own = [t for t in program.tensors if t.name not in updated]
    tensors = [
        *(t for t in program.tensors if t.name in updated),
        *(replace(t, role="input") for t in own if t.name in read - written),
        *(replace(t, role="output") for t in own if t.name in written & later),
        *(replace(t, role="temporary") for t in own if t.name in written - later),
    ]
    used = sizes_in((tensors, items))
    made = replace(
        program,
        name=program.name if len(groups) == 1 else f"{program.name}.{k}",
        sizes=tuple(n for n in program.sizes if n in used),
        free_sizes=(),
        size_parameters=(),
        tensors=tuple(tensors),
        body=items,
        checks=(),
        canonical="",
        constants=tuple(n for n in program.constants if n in read),
    )
    return Step(
        with_hash(made), _names(tensors, "input", "inout"), _names(tensors, "output", "inout")
    )


def _names(tensors: Sequence[Tensor], *roles: Role) -> tuple[str, ...]:
    return tuple(t.name for t in tensors if t.role in roles)


def with_hash(program: Program) -> Program:
    """The program, as one of its own."""
    data = programs_to_json([replace(program, source="", filename="", name="", canonical="")])
    return replace(program, canonical=hashlib.sha256(json.dumps(data).encode()).hexdigest())


def sizes_in(part: object) -> frozenset[str]:
    """Variables of all index expressions and conditions in a part of a program."""
    return frozenset[str]().union(*[e.variables() for e in indices_in(part)])


Lifetimes = Mapping[str, tuple[int, int]]


def lifetimes(program: Program, steps: Sequence[Step], turns: Sequence[Sequence[int]]) -> Lifetimes:
    """First and last turn whose steps need each tensor; results are needed to the end."""
    out: dict[str, tuple[int, int]] = {t.name: (0, 0) for t in program.inputs}
    for turn, members in enumerate(turns):
        for step in [steps[k] for k in members]:
            for name in step.writes:
                out.setdefault(name, (turn, turn))
            for name in step.reads:
                out[name] = out[name][0], turn
    for t in program.outputs:
        out[t.name] = out[t.name][0], len(turns) - 1
    return out
