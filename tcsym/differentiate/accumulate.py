# SPDX-License-Identifier: Apache-2.0
"""Items -> the same without statements that combine with old values or write a slice twice.

`T(i) += e` becomes a sum of its own and `T(i) = T(i) + sum(i)`; then a slice of a tensor that a
later statement of the same block replaces whole gets a name of its own, as do all that read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.algebra import (
    TRUTH,
    both,
    compared,
    converted,
    reads_replaced,
    select,
)
from tcsym.differentiate.names import Names
from tcsym.differentiate.places import Bounds, is_at_least, range_of
from tcsym.errors import DerivativeError
from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import (
    Binary,
    Compare,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    dtype_of,
    is_fixed,
    reads,
    statements,
)
from tcsym.index.expr import ZERO, Index, var
from tcsym.types import DType

Slice = tuple[Index | None, ...]  # fixed positions; None: the whole dimension
Tensors = dict[str, Tensor]


def without_accumulation(
    items: tuple[Item, ...], tensors: Tensors, names: Names
) -> tuple[Item, ...]:
    """Every statement assigns; new temporaries go to `tensors`."""
    return _Block(tensors, names, {}).items(items)


def own_subscripts(s: Statement) -> tuple[tuple[Range, int], ...]:
    """The left index variables' ranges, with their dimensions."""
    found = [(range_of(e, s.domain), d) for d, e in enumerate(s.subscripts)]
    return tuple((r, d) for r, d in found if r is not None)


def reduces(s: Statement) -> bool:
    return any(r.reduced or r.at is not None for r in s.domain)


class _Block(Struct, frozen=True):
    tensors: Tensors
    names: Names
    bounds: Mapping[str, tuple[Index, Index]]

    def items(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        found: list[Item] = []
        for item in items:
            match item:
                case Statement():
                    found += self._assigned(item)
                case For(variable, lower, upper, body):
                    inner = _Block(
                        self.tensors, self.names, {**self.bounds, variable: (lower, upper)}
                    )
                    found.append(replace(item, body=inner.items(body)))
                case If(_, then, orelse):
                    found.append(replace(item, then=self.items(then), orelse=self.items(orelse)))
                case _:
                    assert_never(item)
        k = 0
        while k < len(found):
            k = 0 if self._renamed_slice(found, k) else k + 1
        return tuple(found)

    def _assigned(self, s: Statement) -> list[Statement]:
        if s.op == "=" and s.scattered:
            message = f"`{s.target}` is assigned at a position that is read from a tensor"
            raise DerivativeError(message, span=s.span, hint="sum into it: `+=!`")
        if s.op == "=" or (s.initialise and not reduces(s)):
            return [
                replace(
                    s,
                    op="=",
                    initialise=False,
                    value=converted(s.value, self.tensors[s.target].dtype),
                )
            ]
        dtype = self.tensors[s.target].dtype
        wide = dtype.accumulator
        if s.initialise and dtype is wide:
            return [
                replace(s, value=converted(s.value, dtype))
            ]  # counts of conditions are no bools
        old = converted(Read(s.target, s.subscripts, dtype), wide)
        if not reduces(s):
            value = _combined(s, old, converted(s.value, wide))
            return [replace(s, op="=", value=converted(value, dtype))]
        if not s.initialise and all(_is_at_one(r, s) for r in s.scattered) and s.scattered:
            return self._at_one(s, old)
        partial = self.temporary(s, self.names.fresh(f"{s.target}_sum"))
        own = tuple(var(r.variable) for r, _ in own_subscripts(s))
        new = Read(partial.name, own, wide)
        total = converted(new if s.initialise else _combined(s, old, new), dtype)
        domain = tuple(replace(r, at=None) for r in s.domain if not r.reduced)
        term = converted(s.value, wide)
        return [
            replace(s, target=partial.name, subscripts=own, initialise=True, value=term),
            replace(s, op="=", initialise=False, domain=domain, value=total, given=()),
        ]

    def _at_one(self, s: Statement, old: Expr) -> list[Statement]:
        """At a position that is the same for all terms, their sum; elsewhere what was there."""
        here: Expr = TRUTH
        for r in s.scattered:
            place = position_parts(r.at)[1] if r.at is not None else ZERO
            assert not isinstance(place, Index)
            number = IndexValue(var(r.variable), DType.INT32)
            here = both(here, Compare("eq", compared(place), number))
        dtype = self.tensors[s.target].dtype
        new, found = converted(s.value, dtype.accumulator), list[Statement]()
        if any(r.reduced for r in s.walked):
            alone = replace(s, domain=s.walked)
            made = self.temporary(alone, self.names.fresh(f"{s.target}_sum"))
            own = tuple(var(r.variable) for r, _ in own_subscripts(alone))
            found.append(
                replace(alone, target=made.name, subscripts=own, initialise=True, value=new)
            )
            new = Read(made.name, own, made.dtype)
        value = converted(select(here, _combined(s, old, new), old), dtype)
        domain = tuple(replace(r, at=None) for r in s.domain if not r.reduced)
        return [*found, replace(s, op="=", domain=domain, value=value, given=())]

    def temporary(self, s: Statement, name: str) -> Tensor:
        """For what `s` writes, by its left index variables alone."""
        shape = tuple(r.upper for r, _ in own_subscripts(s))
        made = Tensor(name, self.tensors[s.target].dtype.accumulator, shape, "temporary")
        self.tensors[name] = made
        return made

    # ---- slices that are replaced

    def _renamed_slice(self, block: list[Item], j: int) -> bool:
        """Whether the slice that `block[j]` replaces was renamed in front of it."""
        s = block[j]
        key = self._slice(s) if isinstance(s, Statement) else None
        if not isinstance(s, Statement) or key is None:
            return False
        for i in range(j - 1, -1, -1):
            earlier = block[i]
            if isinstance(earlier, Statement) and earlier.target == s.target:
                if self._slice(earlier) != key:
                    return False
                between = tuple(block[i + 1 : j + 1])
                if not all(self._reads_apart_or_in(r, s.target, key) for r in _reads(between)):
                    return False
                self._rename(block, i, j, key)
                return True
            if any(x.target == s.target for x in statements((earlier,))):
                between = tuple(block[i + 1 : j + 1])
                if not isinstance(earlier, If) or not self._arms_write(earlier, s.target, key):
                    return False
                if not all(self._reads_apart_or_in(r, s.target, key) for r in _reads(between)):
                    return False
                self._rename_in_arms(block, i, j, key)
                return True
        return False

    def _arms_write(self, item: If, target: str, key: Slice) -> bool:
        """Each arm writes this slice, in one statement, and reads nothing that may be in it."""
        for arm in (item.then, item.orelse):
            own = [x for x in statements(arm) if x.target == target]
            if len(own) != 1 or own[0] not in arm or self._slice(own[0]) != key:
                return False
            here = [r for r in _reads(arm) if r.tensor == target]
            if not all(_is_apart(r, key, self.bounds) for r in here):
                return False
        return True

    def _slice(self, s: Statement) -> Slice | None:
        """What `s` writes, if that is a slice whole in the other dimensions."""
        shape = self.tensors[s.target].shape
        found: list[Index | None] = []
        for e, extent in zip(s.subscripts, shape, strict=True):
            r = range_of(e, s.domain)
            if r is not None and (r.lower != ZERO or r.upper != extent):
                return None
            found.append(e if r is None else None)
        return tuple(found)

    def _reads_apart_or_in(self, r: Read, tensor: str, key: Slice) -> bool:
        return r.tensor != tensor or _is_in(r, key) or _is_apart(r, key, self.bounds)

    def _rename(self, block: list[Item], i: int, j: int, key: Slice) -> None:
        s = block[i]
        assert isinstance(s, Statement)
        made = self.temporary(s, self.names.version(s.target))
        block[i] = _slice_of_its_own(s, made.name)
        self._rename_reads(block, range(i + 1, j + 1), s.target, made.name, key)

    def _rename_in_arms(self, block: list[Item], i: int, j: int, key: Slice) -> None:
        item = block[i]
        assert isinstance(item, If)
        target = block[j].target  # type: ignore[union-attr]
        first = next(x for x in item.then if isinstance(x, Statement) and x.target == target)
        made = self.temporary(first, self.names.version(target))

        def renamed(arm: tuple[Item, ...]) -> tuple[Item, ...]:
            return tuple(
                _slice_of_its_own(x, made.name)
                if isinstance(x, Statement) and x.target == target
                else x
                for x in arm
            )

        block[i] = replace(item, then=renamed(item.then), orelse=renamed(item.orelse))
        self._rename_reads(block, range(i + 1, j + 1), target, made.name, key)

    def _rename_reads(
        self, block: list[Item], at: range, target: str, made: str, key: Slice
    ) -> None:
        def read(r: Read) -> Expr:
            if r.tensor != target or not _is_in(r, key):
                return r
            kept = tuple(e for e, fixed in zip(r.subscripts, key) if fixed is None)
            return Read(made, kept, r.dtype)

        for k in at:
            block[k] = reads_replaced(block[k], read)


def _is_at_one(r: Range, s: Statement) -> bool:
    moving = frozenset(x.variable for x in s.walked)
    return r.at is not None and is_fixed(position_parts(r.at)[1], moving)


def _slice_of_its_own(s: Statement, name: str) -> Statement:
    own = tuple(var(r.variable) for r, _ in own_subscripts(s))
    return replace(s, target=name, subscripts=own)


def _combined(s: Statement, old: Expr, new: Expr) -> Expr:
    dtype = dtype_of(old)
    match s.op:
        case "+=":
            return Binary("add", old, new, dtype)
        case "*=":
            return Binary("mul", old, new, dtype)
        case "min=":
            kept: Expr = Compare("le", old, new)
        case _:
            kept = Compare("ge", old, new)
    is_nan = Compare("ne", old, old)  # which stays
    kept = Binary("or", kept, is_nan, DType.BOOL) if dtype.is_float else kept
    return Select(kept, old, new, dtype)


def _reads(items: tuple[Item, ...]) -> list[Read]:
    return [r for s in statements(items) for e in s.expressions for r in reads(e)]


def _is_in(r: Read, key: Slice) -> bool:
    return all(fixed is None or e == fixed for e, fixed in zip(r.subscripts, key))


def _is_apart(r: Read, key: Slice, bounds: Bounds) -> bool:
    for e, fixed in zip(r.subscripts, key):
        if fixed is None or not isinstance(e, Index):
            continue
        if is_at_least(e - fixed, 1, bounds) or is_at_least(fixed - e, 1, bounds):
            return True
    return False
