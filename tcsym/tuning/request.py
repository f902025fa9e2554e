"""What users ask of the tuner -> a request it can work on, and what is said of given sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import get_args

from tcsym.errors import OptionError
from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.sizes import Dim
from tcsym.target import Target
from tcsym.tuning.distribution import distribution_of
from tcsym.tuning.report import TuningReport
from tcsym.tuning.tune import Request, Search, tune


def tune_program(
    program: Program,
    target: Target,
    declared: Mapping[str, Dim | int],
    sizes: object = None,
    budget: str | int = "60s",
    *,
    weights: Sequence[float] | None = None,
    start: Options | Sequence[Options] | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    seed: int = 0,
    search: Search = "guided",
) -> TuningReport:
    """See `Kernel.tune`. Errors: SizeError, OptionError for the arguments."""
    if search not in get_args(Search):
        raise OptionError(f"search is {search!r}, expected one of {', '.join(get_args(Search))}")
    given = (start,) if isinstance(start, Options) else tuple(start or ())
    if not all(isinstance(options, Options) for options in given):
        raise OptionError(f"`start` is {start!r}, expected tcsym.Options or a list of them")
    distribution = distribution_of(program, sizes, declared, weights, seed)
    request = Request(
        program,
        target,
        distribution,
        budget,
        given,
        executor,
        seed=seed,
        search=search,
        progress=progress,
    )
    return tune(request)
