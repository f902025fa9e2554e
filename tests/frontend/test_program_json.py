# SPDX-License-Identifier: Apache-2.0
"""Programs come back from JSON exactly, with every span; other data is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from tcsym.compiler import analyse, explain_stage
from tcsym.frontend.program import Program
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tcsym.options import Options
from tcsym.target.names import resolve_target
from tests.differential.corpus import CORPUS

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def through_text(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    return programs_from_json(json.loads(json.dumps(programs_to_json(programs))))


def all_values(x: object) -> Iterator[object]:
    """Everything `x` was made from, also what takes no part in equality."""
    if isinstance(x, Struct):
        yield type(x)
        for name in x.__struct_fields__:
            yield from all_values(getattr(x, name))
    elif isinstance(x, tuple):
        yield len(x)
        for item in x:
            yield from all_values(item)
    else:
        yield type(x), repr(x)


@pytest.mark.parametrize("case", CORPUS.values(), ids=CORPUS.keys())
def test_programs_come_back(case: Any) -> None:
    programs = tuple(analyse(case.source, "some file").values())
    back = through_text(programs)
    assert list(all_values(back)) == list(all_values(programs))
    target = resolve_target("cpu:novector")
    for old, new in zip(programs, back, strict=True):
        for stage in ("syntax", "program", "ranges"):
            texts = [explain_stage(p, stage, target, Options(), {}) for p in (old, new)]
            assert texts[0] == texts[1]


@pytest.mark.parametrize("value", ["1e-45", "0.1", "-INFINITY", "INFINITY", "16777217", "-0.0"])
def test_constants_are_exact(value: str) -> None:
    programs = tuple(analyse(f"def f(double(N) A) -> (C) {{ C(i) = A(i) + {value} }}").values())
    assert through_text(programs) == programs


def test_deep_expressions_need_no_stack() -> None:
    (program,) = analyse("def f(float(N) A) -> (C) { C(i) = A(i) }").values()
    body: Any = program.body[0]
    value = body.value
    from msgspec.structs import replace

    from tcsym.frontend.program import Unary

    for _ in range(20_000):
        value = Unary("neg", value, value.dtype)
    (back,) = through_text((replace(program, body=(replace(body, value=value),)),))
    depth, at = 0, back.body[0].value  # type: ignore[union-attr]
    while isinstance(at, Unary):
        depth, at = depth + 1, at.operand
    assert (depth, at) == (20_000, body.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda nodes: nodes[:-1],
        lambda nodes: [],
        lambda nodes: [*nodes, ["Span", 1, 2, 3]],
        lambda nodes: [["os.system", "true"], *nodes],
        lambda nodes: [["Span", 1, 2, 3, 4], *nodes],
        lambda nodes: [[""], ["", [7]], *nodes],
        lambda nodes: [["DType", "float31"], *nodes],
        lambda nodes: 7,
        lambda nodes: [7],
        lambda nodes: [[]],
    ],
)
def test_other_data_is_refused(damage: Any) -> None:
    nodes = programs_to_json(tuple(analyse(MM).values()))
    with pytest.raises((ValueError, TypeError, LookupError)):
        programs_from_json(damage(nodes))
