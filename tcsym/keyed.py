# SPDX-License-Identifier: Apache-2.0
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


class _Kept:
    """Its hash once it was wanted: nodes are looked up with all that they are part of."""

    __slots__ = ("_hash",)
    _hash: int


class Keyed(_Kept, Struct, frozen=True):
    """Compares, hashes and prints by its fields but those named in `aside`.

    Compared and hashed one after the other, not by recursion: trees may be deeper than Python's
    stack.
    """

    aside: ClassVar[tuple[str, ...]] = ("span",)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or _are_equal(self, other)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            return _hash_of(self)

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in key_fields(type(self))]
        return f"{type(self).__name__}({', '.join(shown)})"


_keep_hash: Callable[[Keyed, int], None] = vars(_Kept)["_hash"].__set__


@cache
def key_fields(kind: type[Struct]) -> tuple[str, ...]:
    """The fields that tell values of a class apart."""
    aside = kind.aside if issubclass(kind, Keyed) else ()
    return tuple([name for name in kind.__struct_fields__ if name not in aside])


@cache
def _key(kind: type[Struct]) -> Callable[[Any], tuple[Any, ...]]:
    names = key_fields(kind)
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple([getattr(x, name) for name in names])


def _hash_of(top: Keyed) -> int:
    waiting: list[Keyed] = [top]
    while waiting:
        x, n = waiting[-1], len(waiting)
        key = _key(type(x))(x)
        for value in key:
            if isinstance(value, Keyed):
                waiting.append(value)
            elif isinstance(value, tuple):
                waiting.extend([y for y in value if isinstance(y, Keyed)])
        if len(waiting) > n:
            waiting[n:] = [y for y in waiting[n:] if not hasattr(y, "_hash")]
        if len(waiting) == n:
            _keep_hash(waiting.pop(), hash(key))
    return top._hash


def _are_equal(a: Keyed, b: Keyed) -> bool:
    """Of one class."""
    key = _key(type(a))
    waiting: list[tuple[Any, Any]] = list(zip(key(a), key(b)))
    while waiting:
        x, y = waiting.pop()
        if x is y:
            continue
        if isinstance(x, Keyed):
            if type(x) is not type(y):
                return False
            key = _key(type(x))
            waiting.extend(zip(key(x), key(y)))
        elif isinstance(x, tuple) and isinstance(y, tuple):
            if len(x) != len(y):
                return False
            waiting.extend(zip(x, y))
        elif x != y:
            return False
    return True
