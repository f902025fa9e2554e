"""Compilation options: frozen, validated, JSON round trip. They never change a result, only speed.

Tile shapes and thread counts are rules in sizes and machine facts, not literals tied to one size.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, get_args

from tcsym.errors import OptionError
from tcsym.records import dataclass

Bind = Literal["never", "before", "after"]
Scheduler = Literal["align", "isl"]
Fusion = Literal["max", "preserve-coincident", "min"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a program is compiled.

    bind: when sizes fixed at `define(sizes=)` become numbers: never (run-time arguments that are
        only checked), before scheduling, or after it (code generation sees numbers).
    scheduler: `align` fuses by aligning iterators through dependences; `isl` is isl's scheduler.
    fusion: `max` shares every loop that dependences allow, `preserve-coincident` only while the
        shared loops stay parallel, `min` none.
    register_rows, register_vectors: register tile of a contraction (0: the target's default).
    pack: copy operands of contractions into panels.
    vectorize, parallelize: allow vector loops, threads.
    row_unroll: vectors in flight in row loops and row reductions.
    min_work_per_thread: scalar operations below which no further thread is woken.
    time_limit: seconds for scheduling before the next simpler strategy is taken.
    """

    bind: Bind = "never"
    scheduler: Scheduler = "align"
    fusion: Fusion = "max"
    register_rows: int = 0
    register_vectors: int = 0
    pack: bool = True
    vectorize: bool = True
    parallelize: bool = True
    row_unroll: int = 4
    min_work_per_thread: int = 65536
    time_limit: float = 5.0

    def __post_init__(self) -> None:
        for name, choices in (("bind", Bind), ("scheduler", Scheduler), ("fusion", Fusion)):
            _require_choice(name, getattr(self, name), get_args(choices))
        for name in ("register_rows", "register_vectors", "row_unroll", "min_work_per_thread"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise OptionError(f"option `{name}` is {value!r}, expected an integer >= 0")
        if not self.time_limit > 0:
            raise OptionError(f"option `time_limit` is {self.time_limit!r}, expected seconds > 0")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Options:
        data: dict[str, Any] = json.loads(text)
        known = {f.name for f in dataclasses.fields(Options)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise OptionError(f"unknown option `{unknown[0]}`, expected one of {sorted(known)}")
        return Options(**data)


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"option `{name}` is {value!r}, expected one of {', '.join(choices)}")
