# SPDX-License-Identifier: Apache-2.0
"""Sizes -> options: a decision tree, as tuning learns and the store keeps it.

Its leaves' contexts are disjoint and cover all sizes by construction, whatever a file says; isl
proves so once more when a tree is made (`tuning.regions`). Sizes are named `n0`, `n1`, … in the
order of `Program.sizes`, so that a tree serves every program that is equal up to names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, assert_never

from msgspec import Struct

from tcsym.errors import OptionError
from tcsym.index.expr import TRUE, Condition, Index, all_of, eq, ge, mod, negate, var
from tcsym.index.values import product_of
from tcsym.options import Options

DEEPEST = 40
MOST_CANDIDATES = 16
_BOUND = re.compile(r"(\d+) <= n(\d+) <= (\d+)")
_NAMES = r"(n\d+(?:\*n\d+)*)"
_COMPARED = re.compile(rf"(?:(\d+)\*)?{_NAMES} >= (?:(\d+)|(?:(\d+)\*)?{_NAMES})")
_MULTIPLE = re.compile(rf"{_NAMES} % (\d+) == 0")
_FILLED = re.compile(rf"\({_NAMES} - 1\) % (\d+) >= (\d+)")


class Predicate(Struct, frozen=True):
    """A test of the product of `sizes` (positions).

    Without divisor: `scale` times it is at least `least` times the product of `other`.
    With one: its last block of `divisor` has more than `least` elements; all of them if `least` is
    `divisor - 1`: then it is a multiple.
    """

    sizes: tuple[int, ...]
    least: int = 0
    divisor: int = 0
    other: tuple[int, ...] = ()
    scale: int = 1

    def holds(self, values: Sequence[int]) -> bool:
        product = prod(values[k] for k in self.sizes)
        if self.divisor:
            return (product - 1) % self.divisor >= self.least
        return self.scale * product >= self.least * prod(values[k] for k in self.other)

    def condition(self, names: Sequence[str]) -> Condition:
        product = _product(self.sizes, names)
        if not self.divisor:
            return ge(product * self.scale, _product(self.other, names) * self.least)
        if self.least == self.divisor - 1:
            return eq(mod(product, self.divisor), 0)
        return ge(mod(product - 1, self.divisor), self.least)

    def __str__(self) -> str:
        product = "*".join(f"n{k}" for k in self.sizes)
        if self.divisor:
            if self.least == self.divisor - 1:
                return f"{product} % {self.divisor} == 0"
            return f"({product} - 1) % {self.divisor} >= {self.least}"
        left = product if self.scale == 1 else f"{self.scale}*{product}"
        right = [str(self.least)] if self.least != 1 or not self.other else []
        return f"{left} >= {'*'.join((*right, *(f'n{k}' for k in self.other)))}"


def _product(sizes: Sequence[int], names: Sequence[str]) -> Index:
    return product_of(var(names[k]) for k in sizes)


class Box(Struct, frozen=True):
    """Every size lies between its bounds, both inclusive."""

    bounds: tuple[tuple[int, int], ...]

    def holds(self, values: Sequence[int]) -> bool:
        return all(low <= v <= high for v, (low, high) in zip(values, self.bounds, strict=True))

    def contains(self, other: Box) -> bool:
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.bounds, other.bounds))

    def condition(self, names: Sequence[str]) -> Condition:
        return all_of(
            test
            for name, (low, high) in zip(names, self.bounds, strict=True)
            for test in (ge(var(name), low), ge(high, var(name)))
        )

    def __str__(self) -> str:
        return " and ".join(f"{a} <= n{k} <= {b}" for k, (a, b) in enumerate(self.bounds))


class Leaf(Struct, frozen=True):
    options: Options


class Split(Struct, frozen=True):
    test: Predicate | Box
    then: Tree
    orelse: Tree


Tree = Leaf | Split


def leaf_of(tree: Tree, values: Sequence[int]) -> Leaf:
    """The leaf for these sizes."""
    while isinstance(tree, Split):
        tree = tree.then if tree.test.holds(values) else tree.orelse
    return tree


def depth_of(tree: Tree) -> int:
    return 0 if isinstance(tree, Leaf) else 1 + max(depth_of(tree.then), depth_of(tree.orelse))


def joined(tree: Tree, earlier: Tree) -> Tree:
    """`tree` in its box, `earlier` elsewhere; without the latter where the box has all of its.

    A tree without a box serves all sizes. `earlier` is dropped, too, if trees would get too deep.
    """
    if not (isinstance(tree, Split) and isinstance(tree.test, Box)):
        return tree
    box = earlier.test if isinstance(earlier, Split) else None
    if isinstance(earlier, Split) and isinstance(box, Box) and tree.test.contains(box):
        return joined(tree, earlier.orelse)
    if tree.then == earlier:
        return earlier
    found = Split(tree.test, tree.then, earlier)
    return found if depth_of(found) <= DEEPEST else tree


def contexts(
    tree: Tree, names: Sequence[str], context: Condition = TRUE
) -> Iterator[tuple[Condition, Options]]:
    """The leaves with the conditions on the way to them, over the given names of sizes."""
    match tree:
        case Leaf(options):
            yield context, options
        case Split(test, then, orelse):
            condition = test.condition(names)
            yield from contexts(then, names, all_of((context, condition)))
            yield from contexts(orelse, names, all_of((context, negate(condition))))
        case _:
            assert_never(tree)


def tree_text(tree: Tree, names: Sequence[str]) -> str:
    """A few lines: `if M*N >= 4096: fusion=min`. What several leaves have is told below."""
    leaves = [options for options in leaves_of(tree) if options != Options()]
    several = [options for options in dict.fromkeys(leaves) if leaves.count(options) > 1]
    told = {options: f"options {k}" for k, options in enumerate(several, 1)}
    legend = [f"{name}: {options}" for options, name in told.items()]
    return "\n".join([_text(tree, names, told, ""), *legend])


def leaves_of(tree: Tree) -> list[Options]:
    """The options of all leaves, from left to right."""
    if isinstance(tree, Leaf):
        return [tree.options]
    return [*leaves_of(tree.then), *leaves_of(tree.orelse)]


def _text(tree: Tree, names: Sequence[str], told: Mapping[Options, str], indent: str) -> str:
    match tree:
        case Leaf(options):
            return f"{indent}{told.get(options, options)}"
        case Split(test, then, orelse):
            named = re.sub(r"n(\d+)", lambda m: names[int(m[1])], str(test))
            arms = [_text(arm, names, told, indent + "  ") for arm in (then, orelse)]
            return f"{indent}if {named}:\n{arms[0]}\n{indent}else:\n{arms[1]}"
        case _:
            assert_never(tree)


def kept_json(tree: Tree, candidates: Sequence[Options]) -> dict[str, Any]:
    """What the store keeps: the tree, and at its root what else may be the best at single sizes."""
    leaves = leaves_of(tree)
    others = [o.changed() for o in dict.fromkeys(candidates) if o not in leaves]
    return {**tree_to_json(tree), "candidates": others[:MOST_CANDIDATES]}


def candidates_from_json(data: Any, tree: Tree) -> tuple[Options, ...]:
    """The options of the leaves of `tree`, and those that `data` has beside it.

    OptionError: this version does not know them.
    """
    others = data.get("candidates", ())
    if not isinstance(others, list | tuple):
        raise OptionError(f"no list of options: {others!r:.200}")
    known = [_known(o) for o in others[:MOST_CANDIDATES]]
    return tuple(dict.fromkeys((*leaves_of(tree), *known)))


def tree_to_json(tree: Tree) -> dict[str, Any]:
    match tree:
        case Leaf(options):
            return {"options": options.changed()}
        case Split(test, then, orelse):
            return {"if": str(test), "then": tree_to_json(then), "else": tree_to_json(orelse)}
        case _:
            assert_never(tree)


def tree_from_json(data: Any, n_sizes: int, depth: int = 0) -> Tree:
    """The tree. OptionError: `data` is no tree over that many sizes, or has unknown options."""
    if not isinstance(data, Mapping) or depth > DEEPEST:
        raise OptionError(f"no decision tree at depth {depth}: {type(data).__name__}")
    if "options" in data:
        return Leaf(_known(data["options"]))
    below = (tree_from_json(data.get(arm), n_sizes, depth + 1) for arm in ("then", "else"))
    return Split(_test(data.get("if"), n_sizes), *below)


def _known(data: object) -> Options:
    """OptionError: this version has no such options, or no such plans."""
    options = Options.from_json(json.dumps(data))
    if options.plan:
        from tcsym.schedule.wanted import require_plans  # loads what compiles

        require_plans(options)
    return options


def _test(text: object, n_sizes: int) -> Predicate | Box:
    if isinstance(text, str) and "<=" in text:
        return _box(text, n_sizes)
    found = _predicate(text) if isinstance(text, str) else None
    if found is None:
        raise OptionError(f"no test of sizes: {text!r}")
    if max((*found.sizes, *found.other)) >= n_sizes:
        raise OptionError(f"no test of {n_sizes} sizes: {text!r}")
    return found


def _predicate(text: str) -> Predicate | None:
    if found := _COMPARED.fullmatch(text):
        scale, sizes, least, times, other = found.groups()
        least = least or times or "1"
        return Predicate(_sizes(sizes), int(least), 0, _sizes(other or ""), int(scale or 1))
    if found := _MULTIPLE.fullmatch(text):
        divisor = int(found[2])
        return Predicate(_sizes(found[1]), divisor - 1, divisor) if divisor else None
    if found := _FILLED.fullmatch(text):
        divisor = int(found[2])
        return Predicate(_sizes(found[1]), int(found[3]), divisor) if divisor else None
    return None


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(name[1:]) for name in text.split("*") if name)


def _box(text: str, n_sizes: int) -> Box:
    found = [_BOUND.fullmatch(part) for part in text.split(" and ")]
    bounds = [(int(m[1]), int(m[3])) for k, m in enumerate(found) if m and int(m[2]) == k]
    if len(bounds) != n_sizes or len(found) != n_sizes:
        raise OptionError(f"no bounds of {n_sizes} sizes: {text!r}")
    return Box(tuple(bounds))
