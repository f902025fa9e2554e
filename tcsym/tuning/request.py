# SPDX-License-Identifier: Apache-2.0
"""What a tune is asked to do, as one value."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.process.threads import get_num_threads
from tcsym.sizes.context import Context
from tcsym.target.target import Target
from tcsym.tuning.distribution import Distribution, Values
from tcsym.tuning.evaluate import Compile, Dense, Job, check_sizes, fingerprint_of

Search = Literal["guided", "genetic"]
DEFAULT = Options()


class Request(Struct, frozen=True):
    """What to tune and how far. context: what all sizes lie in; code is made for it. compile: tests
    put faulty compilers here.

    kept_fields: options that stay at their defaults. deepest: levels of the tree (0: one region);
    None: as many as the measured sizes allow.
    """

    program: Program
    target: Target
    distribution: Distribution
    budget: str | float | None = None
    candidates: int | None = None
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

    @staticmethod
    def memory_of(target: Target) -> int:
        """Address space of a worker: a device's driver takes more than there is memory."""
        return 0 if target.kind == "cuda" else 4 * 2**30


def template_job(request: Request) -> Job:
    """The default against itself at no sizes."""
    served = served_by(request)
    compile = request.compile or Dense(request.context, served)
    given = request.program, request.target, DEFAULT, DEFAULT, (), get_num_threads()
    return Job(*given, context=request.context, served=served, compile=compile)


def served_by(request: Request) -> tuple[Values, ...]:
    """Sizes that code must serve: the tuned ones, and those at which it is checked; () for all."""
    given, program = request.distribution, request.program
    if given.n_places > len(given.weights):
        return ()
    return (*given.weights, *check_sizes(program, given.sizes, request.context))


@depth_checked
def baseline_job(request: Request) -> Job:
    """As above, by the compiler whatever tests ask, and to the code that it makes here.

    What workers compile from what they were sent once differed from what calls run.
    """
    compile = Dense(request.context, served_by(request))
    here = compile(request.program, request.target, DEFAULT)
    return replace(template_job(request), compile=compile, expected=fingerprint_of(here))
