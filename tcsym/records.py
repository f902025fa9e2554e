"""`@dataclass` for classes with slots, made in a quarter of the time: it was a third of start-up.

The standard decorator compiles six functions for each class. This one compiles `__init__` and
shares the rest. What it makes is a dataclass in every respect that matters here: `fields`,
`replace`, `match`, pickling, equality within one class, hashing, FrozenInstanceError, `help`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # re-exported
else:

    def dataclass(*, slots, frozen=False, eq=True, kw_only=False):
        """As `dataclasses.dataclass`; `slots` must be true."""
        assert slots

        def decorate(plain):
            plain.__doc__ = plain.__doc__ or plain.__name__  # else it is made from the signature
            own = frozenset(vars(plain))
            bare = dict(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)
            cls = dataclasses.dataclass(**bare)(plain)
            made = {"__init__": _init(cls), "__repr__": _repr(cls)}
            if eq:
                made["__eq__"], hashed = _comparison(cls)
                made["__hash__"] = hashed if frozen else None
            if frozen:
                made |= _FROZEN
            for name, function in made.items():
                if name not in own:
                    setattr(cls, name, function)
            return cls

        return decorate


class _Factory:
    """Default of a parameter whose value is made by the field's factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(cls: type) -> Any:
    """The only function that is compiled: its parameters must have the fields' names."""
    positional: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    names: dict[str, Any] = {"_FACTORY": _FACTORY}
    for f in fields(cls):
        if not f.init:
            continue
        value = f.name
        parameter = f.name
        names[f"_set_{f.name}"] = getattr(cls, f.name).__set__
        if f.default is not MISSING:
            names[f"_default_{f.name}"] = f.default
            parameter = f"{f.name}=_default_{f.name}"
        elif f.default_factory is not MISSING:
            names[f"_make_{f.name}"] = f.default_factory
            parameter = f"{f.name}=_FACTORY"
            value = f"_make_{f.name}() if {f.name} is _FACTORY else {f.name}"
        (keyword if f.kw_only else positional).append(parameter)
        body.append(f"_set_{f.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *keyword] if keyword else [])]
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
    exec(text, names)
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
    return init


def _values(names: list[str]) -> Any:
    """Function of an object: the tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda x, get=attrgetter(names[0]): (get(x),)) if names else lambda _: ()


def _comparison(cls: type) -> tuple[Any, Any]:
    values = _values([f.name for f in fields(cls) if f.compare])

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __eq__, __hash__


def _repr(cls: type) -> Any:
    names = [f.name for f in fields(cls) if f.repr]

    def __repr__(self: Any) -> str:
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({parts})"

    return __repr__


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


_FROZEN = {
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
