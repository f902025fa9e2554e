"""What a tune is asked to do, as one value."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import field
from typing import Literal

from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.records import dataclass
from tcsym.target import Target
from tcsym.threads import get_num_threads
from tcsym.tuning.distribution import Distribution
from tcsym.tuning.evaluate import Compile, Job, compile_dense

Search = Literal["guided", "genetic"]
DEFAULT = Options()


@dataclass(frozen=True, slots=True)
class Request:
    """What to tune and how far. compile: tests put faulty compilers here.

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
    compile: Compile = field(default=compile_dense)
    kept_fields: frozenset[str] = frozenset()
    deepest: int | None = None


def template_job(request: Request, honest: bool = False) -> Job:
    """The default against itself at no sizes; `honest`: by the compiler, whatever tests ask."""
    compile = compile_dense if honest else request.compile
    threads = get_num_threads()
    return Job(request.program, request.target, DEFAULT, DEFAULT, (), threads, compile=compile)
