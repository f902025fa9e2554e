# SPDX-License-Identifier: Apache-2.0
"""Conditions -> text in the language's notation."""

from __future__ import annotations

from typing import assert_never

from tcsym.index.expr import All, Any_, Condition, Index, IsZero, NonNegative, Not


def _relation_text(i: Index, relation: str) -> str:
    left = Index(tuple((a, c) for a, c in i.terms if c > 0), max(i.constant, 0))
    right = Index(tuple((a, -c) for a, c in i.terms if c < 0), max(-i.constant, 0))
    return f"{left} {relation} {right}"


def condition_text(c: Condition) -> str:
    match c:
        case NonNegative(i):
            return _relation_text(i, ">=")
        case IsZero(i):
            return _relation_text(i, "==")
        case Not(IsZero(i)):
            return _relation_text(i, "!=")
        case Not(inner):
            return f"!({condition_text(inner)})"
        case All(cs):
            return " && ".join(_nested_text(x) for x in cs) if cs else "true"
        case Any_(cs):
            return " || ".join(_nested_text(x) for x in cs) if cs else "false"
        case _:
            assert_never(c)


def _nested_text(c: Condition) -> str:
    compound = isinstance(c, All | Any_) and len(c.conditions) > 1
    return f"({condition_text(c)})" if compound else condition_text(c)
