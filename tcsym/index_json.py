"""Index expressions <-> JSON data, exactly: for manifests in the code cache."""

from __future__ import annotations

from typing import Any, assert_never

from tcsym.index import (
    All,
    Any_,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
)


def to_json(e: Index) -> Any:
    """Plain lists, strings and integers; `from_json` is the inverse."""
    return [e.constant, *([_atom_to_json(a), c] for a, c in e.terms)]


def _atom_to_json(atom: Atom) -> Any:
    match atom:
        case str():
            return atom
        case Product(factors):
            return ["*", *map(_atom_to_json, factors)]
        case FloorDiv(a, b):
            return ["/", to_json(a), to_json(b)]
        case Mod(a, b):
            return ["%", to_json(a), to_json(b)]
        case Min(args):
            return ["min", *map(to_json, args)]
        case Max(args):
            return ["max", *map(to_json, args)]
        case Choose(c, a, b):
            return ["?", condition_to_json(c), to_json(a), to_json(b)]
        case _:
            assert_never(atom)


def from_json(data: Any) -> Index:
    return Index(tuple((_atom_from_json(a), c) for a, c in data[1:]), data[0])


def _atom_from_json(data: Any) -> Atom:
    if isinstance(data, str):
        return data
    tag, args = data[0], data[1:]
    if tag == "*":
        return Product(tuple(map(_atom_from_json, args)))
    if tag == "?":
        return Choose(condition_from_json(args[0]), from_json(args[1]), from_json(args[2]))
    parts = tuple(map(from_json, args))
    if tag == "/":
        return FloorDiv(*parts)
    if tag == "%":
        return Mod(*parts)
    return Min(parts) if tag == "min" else Max(parts)


def condition_to_json(c: Condition) -> Any:
    match c:
        case NonNegative(i):
            return [">=", to_json(i)]
        case IsZero(i):
            return ["==", to_json(i)]
        case Not(inner):
            return ["!", condition_to_json(inner)]
        case All(cs):
            return ["&&", *map(condition_to_json, cs)]
        case Any_(cs):
            return ["||", *map(condition_to_json, cs)]
        case _:
            assert_never(c)


def condition_from_json(data: Any) -> Condition:
    tag, args = data[0], data[1:]
    if tag == ">=":
        return NonNegative(from_json(args[0]))
    if tag == "==":
        return IsZero(from_json(args[0]))
    if tag == "!":
        return Not(condition_from_json(args[0]))
    parts = tuple(map(condition_from_json, args))
    return All(parts) if tag == "&&" else Any_(parts)
