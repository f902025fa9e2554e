"""What a tune is asked to do, as one value."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Literal

from tcsym.context import Context
from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.records import dataclass
from tcsym.target import Target
from tcsym.threads import get_num_threads
from tcsym.tuning.distribution import Distribution
from tcsym.tuning.evaluate import Compile, Dense, Job

Search = Literal["guided", "genetic"]
DEFAULT = Options()


@dataclass(frozen=True, slots=True)
class Request:
    """What to tune and how far. context: what all sizes lie in; code is made for it. compile: tests
    put faulty compilers here.

    kept_fields: options that stay at their defaults. deepest: levels of the tree (0: one region);
    None: as many as the measured sizes allow.
    """

    program: Program
    target: Target
    distribution: Distribution
    budget: str | int
    start: tuple[Options, ...] = ()
    executor: Executor | None = None
    seed: int = 0
    search: Search = "guided"
    progress: bool | None = None
    timeout: float = 30.0
    memory: int = 4 * 2**30
    context: Context = ()
    compile: Compile | None = None
    kept_fields: frozenset[str] = frozenset()
    deepest: int | None = None


def template_job(request: Request, honest: bool = False) -> Job:
    """The default against itself at no sizes; `honest`: by the compiler, whatever tests ask."""
    right = Dense(request.context)
    compile = right if honest or request.compile is None else request.compile
    given = request.program, request.target, DEFAULT, DEFAULT, (), get_num_threads()
    return Job(*given, context=request.context, compile=compile)
