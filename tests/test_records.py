"""`records.dataclass` makes what `dataclasses.dataclass` makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pprint
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from tcsym import records


def define(dataclass: Any) -> dict[str, type]:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Node:
        span: int = field(default=0, compare=False, repr=False)

    @dataclass(frozen=True, slots=True)
    class Pair(Node):
        """Two values."""

        left: object
        right: object = 2

    @dataclass(frozen=True, slots=True)
    class Made:
        total: int = field(init=False)
        parts: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", sum(self.parts))

    @dataclass(frozen=True, slots=True, eq=False)
    class Own:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.value % 2 == other.value % 2

        def __hash__(self) -> int:
            return self.value % 2

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(slots=True)
    class Mutable:
        items: tuple[int, ...] = ()

    return {c.__name__: c for c in (Node, Pair, Made, Own, Empty, Mutable)}


OURS, STANDARD = define(records.dataclass), define(dataclasses.dataclass)
for name, cls in OURS.items():  # so that pickle finds them
    cls.__qualname__ = name
    globals()[name] = cls

SAMPLES = [
    ("Node", (), {}),
    ("Node", (), {"span": 3}),
    ("Pair", (1,), {}),
    ("Pair", (1, 3), {"span": 5}),
    ("Pair", (), {"left": "x", "right": (1, 2)}),
    ("Made", (), {}),
    ("Made", ([1, 2],), {}),
    ("Own", (4,), {}),
    ("Empty", (), {}),
    ("Mutable", (), {}),
    ("Mutable", ((1,),), {}),
]


def made(classes: dict[str, type]) -> list[Any]:
    return [classes[name](*args, **kwargs) for name, args, kwargs in SAMPLES]


def outcome(f: Any, *args: Any) -> Any:
    try:
        return f(*args)
    except Exception as e:
        return type(e)


def test_equality_hash_and_text_agree() -> None:
    ours, standard = made(OURS), made(STANDARD)
    short = [repr(x).replace("define.<locals>.", "") for x in standard]
    assert [repr(x) for x in ours] == short
    assert [outcome(hash, x) for x in ours] == [outcome(hash, x) for x in standard]
    equal = [[a == b for b in made(OURS)] for a in ours]
    assert equal == [[a == b for b in made(STANDARD)] for a in standard]


def test_fields_match_and_replace_agree() -> None:
    for name, cls in OURS.items():
        other: Any = STANDARD[name]
        assert cls.__match_args__ == other.__match_args__  # type: ignore[attr-defined]
        assert [f.name for f in dataclasses.fields(cls)] == [
            f.name for f in dataclasses.fields(other)
        ]
        assert not hasattr(made(OURS)[0], "__dict__")
        assert str(inspect.signature(cls)) == str(inspect.signature(other))
    pair = OURS["Pair"](1, 2, span=7)
    changed: Any = dataclasses.replace(pair, left=5)
    assert (changed.left, changed.right, changed.span) == (5, 2, 7)


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
def test_copies_are_equal(sample: int) -> None:
    value = made(OURS)[sample]
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other == value
        assert type(other) is type(value)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [("Pair", (), {}), ("Pair", (1, 2, 3), {}), ("Pair", (1,), {"left": 1}), ("Empty", (1,), {})],
)
def test_wrong_calls_are_type_errors(name: str, args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError, match=f"{name}.__init__"):
        OURS[name](*args, **kwargs)


def test_frozen() -> None:
    pair: Any = OURS["Pair"](1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'left'"):
        pair.left = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'left'"):
        del pair.left
    with pytest.raises(FrozenInstanceError):
        pair.other = 2
    mutable: Any = OURS["Mutable"]()
    mutable.items = (3,)
    assert mutable.items == (3,)


def test_init_is_made_on_first_use() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Late:
        value: int = 1

    assert not inspect.isfunction(vars(Late)["__init__"])
    assert Late().value == 1
    assert inspect.isfunction(vars(Late)["__init__"])


def test_pprint_and_standard_subclass() -> None:
    assert pprint.pformat(OURS["Pair"](1)).endswith("Pair(left=1, right=2)")

    @dataclasses.dataclass(frozen=True, slots=True)
    class Wide(OURS["Pair"]):  # type: ignore[name-defined,misc]
        third: int = 3

    assert (Wide(1).third, Wide(1).left) == (3, 1)
