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

from tcsym.errors import OptionError
from tcsym.index import TRUE, Condition, all_of, eq, ge, index, mod, negate, var
from tcsym.options import Options
from tcsym.records import dataclass

DEEPEST = 12
_BOUND = re.compile(r"(\d+) <= n(\d+) <= (\d+)")
_TEST = re.compile(r"(n\d+(?:\*n\d+)*) (>= (\d+)|% (\d+) == 0)")


@dataclass(frozen=True, slots=True)
class Predicate:
    """The product of `sizes` (positions) is at least `least`, or a multiple of `divisor`."""

    sizes: tuple[int, ...]
    least: int = 0
    divisor: int = 0

    def holds(self, values: Sequence[int]) -> bool:
        product = prod(values[k] for k in self.sizes)
        return product % self.divisor == 0 if self.divisor else product >= self.least

    def condition(self, names: Sequence[str]) -> Condition:
        product = index(1)
        for k in self.sizes:
            product = product * var(names[k])
        return eq(mod(product, self.divisor), 0) if self.divisor else ge(product, self.least)

    def __str__(self) -> str:
        product = "*".join(f"n{k}" for k in self.sizes)
        return f"{product} % {self.divisor} == 0" if self.divisor else f"{product} >= {self.least}"


@dataclass(frozen=True, slots=True)
class Box:
    """Every size lies between its bounds, both inclusive."""

    bounds: tuple[tuple[int, int], ...]

    def holds(self, values: Sequence[int]) -> bool:
        return all(low <= v <= high for v, (low, high) in zip(values, self.bounds, strict=True))

    def condition(self, names: Sequence[str]) -> Condition:
        return all_of(
            test
            for name, (low, high) in zip(names, self.bounds, strict=True)
            for test in (ge(var(name), low), ge(high, var(name)))
        )

    def __str__(self) -> str:
        return " and ".join(f"{a} <= n{k} <= {b}" for k, (a, b) in enumerate(self.bounds))


@dataclass(frozen=True, slots=True)
class Leaf:
    options: Options


@dataclass(frozen=True, slots=True)
class Split:
    test: Predicate | Box
    then: Tree
    orelse: Tree


Tree = Leaf | Split


def leaf_of(tree: Tree, values: Sequence[int]) -> Leaf:
    """The leaf for these sizes."""
    while isinstance(tree, Split):
        tree = tree.then if tree.test.holds(values) else tree.orelse
    return tree


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


def tree_text(tree: Tree, names: Sequence[str], indent: str = "") -> str:
    """A few lines: `if M*N >= 4096: register_rows=4`."""
    match tree:
        case Leaf(options):
            return f"{indent}{options}"
        case Split(test, then, orelse):
            named = re.sub(r"n(\d+)", lambda m: names[int(m[1])], str(test))
            below = indent + "  "
            arms = tree_text(then, names, below), tree_text(orelse, names, below)
            return f"{indent}if {named}:\n{arms[0]}\n{indent}else:\n{arms[1]}"
        case _:
            assert_never(tree)


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
        options = Options.from_json(json.dumps(data["options"]))
        return Leaf(options)
    below = (tree_from_json(data.get(arm), n_sizes, depth + 1) for arm in ("then", "else"))
    return Split(_test(data.get("if"), n_sizes), *below)


def _test(text: object, n_sizes: int) -> Predicate | Box:
    if isinstance(text, str) and "<=" in text:
        return _box(text, n_sizes)
    found = _TEST.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise OptionError(f"no test of sizes: {text!r}")
    sizes = tuple(int(n[1:]) for n in found[1].split("*"))
    if max(sizes) >= n_sizes or (found[4] is not None and int(found[4]) < 1):
        raise OptionError(f"no test of {n_sizes} sizes: {text!r}")
    return Predicate(sizes, int(found[3] or 0), int(found[4] or 0))


def _box(text: str, n_sizes: int) -> Box:
    found = [_BOUND.fullmatch(part) for part in text.split(" and ")]
    bounds = [(int(m[1]), int(m[3])) for k, m in enumerate(found) if m and int(m[2]) == k]
    if len(bounds) != n_sizes or len(found) != n_sizes:
        raise OptionError(f"no bounds of {n_sizes} sizes: {text!r}")
    return Box(tuple(bounds))
