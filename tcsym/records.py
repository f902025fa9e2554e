"""`@dataclass` for classes with slots, made in a tenth of the time: it was a third of start-up.

The standard decorator compiles six functions for each class. This one makes `__init__` when it is
first wanted, from code that classes with as many fields share, and compiles nothing else. What it
makes is a dataclass in every respect that matters here: `fields`, `replace`, `match`, pickling,
equality within one class, hashing, FrozenInstanceError, `help`. Annotations must be text
(`from __future__ import annotations`), none of them a ClassVar.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import lru_cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # re-exported
else:

    def dataclass(*, slots, frozen=False, eq=True, kw_only=False):
        """As `dataclasses.dataclass`; `slots` must be true, and a class's own methods stay."""
        assert slots

        def decorate(plain):
            own = dict(plain.__dict__)
            new = _own_fields(own, kw_only)
            every = {n: f for base in plain.__mro__[:0:-1] for n, f in _inherited(base).items()}
            members = {n: x for n, x in own.items() if n not in ("__dict__", "__weakref__", *new)}
            members["__slots__"] = tuple([n for n in new if n not in every])
            every |= new
            made = {
                "__doc__": plain.__name__,
                "__init__": _Init(),
                "__repr__": _repr([n for n, f in every.items() if f.repr]),
                "__match_args__": tuple([n for n, f in every.items() if f.init and not f.kw_only]),
            }
            if eq:
                made["__eq__"], hashed = _comparison([n for n, f in every.items() if f.compare])
                made["__hash__"] = hashed if frozen else None
            if frozen:
                made |= _FROZEN
            members |= {n: x for n, x in made.items() if own.get(n) is None}
            members[_FIELDS] = every
            members["__dataclass_params__"] = _params(frozen, eq, kw_only)
            members["__qualname__"] = plain.__qualname__
            return type(plain)(plain.__name__, plain.__bases__, members)

        return decorate


_FIELDS, _FIELD = "__dataclass_fields__", dataclasses._FIELD  # type: ignore[attr-defined]


class _Params:
    """As dataclasses' own: dask names objects by these slots."""

    __slots__ = (
        *("eq", "frozen", "init", "kw_only", "match_args", "order", "repr", "slots"),
        *("unsafe_hash", "weakref_slot"),
    )

    def __init__(self, frozen: bool, eq: bool, kw_only: bool) -> None:
        self.frozen, self.eq, self.kw_only = frozen, eq, kw_only
        self.order = self.unsafe_hash = self.weakref_slot = False
        self.init = self.repr = self.match_args = self.slots = True


@lru_cache(None)
def _params(frozen: bool, eq: bool, kw_only: bool) -> _Params:
    return _Params(frozen, eq, kw_only)


def _inherited(base: type) -> dict[str, Any]:
    found: dict[str, Any] = base.__dict__.get(_FIELDS, {})
    return found


def _own_fields(members: dict[str, Any], kw_only: bool) -> dict[str, Any]:
    """Fields of a class body by name, as the standard decorator makes them."""
    found: dict[str, Any] = {}
    for name, annotation in members.get("__annotations__", {}).items():
        default = members.get(name, MISSING)
        f: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
        f.name, f.type, f._field_type = name, annotation, _FIELD
        if f.kw_only is MISSING:
            f.kw_only = kw_only
        found[name] = f
    return found


class _Init:
    """`__init__` of a class until somebody wants it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if isinstance(self.owner.__dict__["__init__"], _Init):
            type.__setattr__(self.owner, "__init__", _init(self.owner))
        return self.owner.__dict__["__init__"].__get__(instance, owner)


class _Factory:
    """Default of a parameter whose value is made by the field's factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(cls: type) -> Any:
    """`__init__` whose parameters have the fields' names."""
    taken = sorted([f for f in fields(cls) if f.init], key=lambda f: bool(f.kw_only))
    names: dict[str, Any] = {"FACTORY": _FACTORY}
    for k, f in enumerate(taken):
        names[f"set{k}"], names[f"make{k}"] = getattr(cls, f.name).__set__, f.default_factory
    defaults = [_FACTORY if _is_made(f) else f.default for f in taken]
    n_positional = sum(not f.kw_only for f in taken)
    made = tuple(map(_is_made, taken))
    code = _init_code(n_positional, made, hasattr(cls, "__post_init__"))
    code = code.replace(co_varnames=("self", *(f.name for f in taken)))
    given = tuple([d for d in defaults[:n_positional] if d is not MISSING])
    init = FunctionType(code, names, "__init__", given)
    init.__kwdefaults__ = {
        f.name: d for f, d in list(zip(taken, defaults))[n_positional:] if d is not MISSING
    }
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
    return init


def _is_made(f: Field[Any]) -> bool:
    return f.default_factory is not MISSING


@lru_cache(None)
def _init_code(n_positional: int, made: tuple[bool, ...], post_init: bool) -> CodeType:
    """What classes with as many fields share: compiling is the cost. Parameters are named p0, p1, …
    and `made` says of each whether its default is made by a factory.
    """
    parameters = [f"p{k}" for k in range(len(made))]
    values = [
        f"make{k}() if p{k} is FACTORY else p{k}" if m else f"p{k}" for k, m in enumerate(made)
    ]
    body = [f"set{k}(self, {value})" for k, value in enumerate(values)]
    body += ["self.__post_init__()"] if post_init else []
    if n_positional < len(made):
        parameters.insert(n_positional, "*")
    text = f"def __init__({', '.join(['self', *parameters])}):\n " + "\n ".join(body or ["pass"])
    names: dict[str, Any] = {}
    exec(text, names)
    code: CodeType = names["__init__"].__code__
    return code


def _values(names: list[str]) -> Any:
    """Function of an object: the tuple of these attributes, none or several."""
    return attrgetter(*names) if names else lambda _: ()


def _comparison(names: list[str]) -> tuple[Any, Any]:
    if len(names) == 1:
        return _comparison_of_one(attrgetter(names[0]))
    values = _values(names)

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __eq__, __hash__


def _comparison_of_one(value: Any) -> tuple[Any, Any]:
    """As `_comparison`, without a call in between: products and sums are compared most."""

    def __eq__(self: Any, other: Any) -> Any:
        return (value(self),) == (value(other),) if type(self) is type(other) else NotImplemented

    def __hash__(self: Any) -> int:
        return hash((value(self),))

    return __eq__, __hash__


def _repr(names: list[str]) -> Any:
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
