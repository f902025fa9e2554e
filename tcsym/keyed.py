"""Values of which some fields do not count: places in a text, functions made from the others.

Values of the package are `msgspec.Struct`s: made in C, they cost a first result an eighth of what
dataclasses do (docs/decisions/0033).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar

from msgspec import Struct


class Keyed(Struct, frozen=True):
    """Compares, hashes and prints by its fields but those named in `aside`."""

    aside: ClassVar[tuple[str, ...]] = ("span",)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        key = _key(type(self))
        return bool(key(self) == key(other))

    def __hash__(self) -> int:
        return hash(_key(type(self))(self))

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in key_fields(type(self))]
        return f"{type(self).__name__}({', '.join(shown)})"


@cache
def key_fields(kind: type[Struct]) -> tuple[str, ...]:
    """The fields that tell values of a class apart."""
    aside = kind.aside if issubclass(kind, Keyed) else ()
    return tuple([name for name in kind.__struct_fields__ if name not in aside])


@cache
def _key(kind: type[Struct]) -> Callable[[Any], Any]:
    return attrgetter(*key_fields(kind))


def are_equal(a: object, b: object) -> bool:
    """As structs compare, one node after the other: trees may be deeper than Python can compare."""
    waiting = [(a, b)]
    while waiting:
        x, y = waiting.pop()
        if x is y:
            continue
        if type(x) is not type(y):
            return False
        if isinstance(x, tuple) and isinstance(y, tuple):
            if len(x) != len(y):
                return False
            waiting.extend(zip(x, y))
        elif isinstance(x, Struct):
            compared = key_fields(type(x))
            waiting.extend([(getattr(x, name), getattr(y, name)) for name in compared])
        elif x != y:
            return False
    return True
