# SPDX-License-Identifier: Apache-2.0
"""Ours: one symbolic kernel for all sizes; also with `out=`, and with sizes substituted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

import tcsym
from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem
from tcsym.runtime.background import settle


@lru_cache(None)
def symbolic(text: str, target: str | None) -> Any:
    """Kept from size to size: that is what is measured."""
    return tcsym.define(text, strategy="symbolic", target=target)


def _arrays(result: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(a) for a in as_tuple(result))


def _plain(problem: Problem) -> Contestant:
    kernel = symbolic(problem.case.text, problem.target)
    arrays = problem.arrays
    return Contestant(lambda: kernel(*arrays), _arrays, settle)


def _into_given(problem: Problem) -> Contestant:
    kernel = symbolic(problem.case.text, problem.target)
    arrays = problem.arrays
    made = kernel(*arrays)
    out = tuple(made) if isinstance(made, tuple) else made
    return Contestant(lambda: kernel(*arrays, out=out), _arrays, settle)


def _substituted(problem: Problem, bind: Any) -> Contestant:
    options = tcsym.Options(bind=bind)
    known = {n: v for n, v in problem.sizes.items() if n in symbolic(problem.case.text, None).sizes}
    kernel = tcsym.define(
        problem.case.text, sizes=known, options=options, target=problem.target, strategy="symbolic"
    )
    arrays = problem.arrays
    return Contestant(lambda: kernel(*arrays), _arrays, settle)


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    yield "tcsym", lambda: _plain(problem)
    yield "tcsym out=", lambda: _into_given(problem)


def substituted(problem: Problem) -> Iterator[tuple[str, Maker]]:
    yield "tcsym after", lambda: _substituted(problem, "after")
    yield "tcsym before", lambda: _substituted(problem, "before")
