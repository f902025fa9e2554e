"""A process that runs jobs from standard input until it ends; whatever one raises is its answer."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any, BinaryIO

import tcsym.tuning.evaluate  # noqa: F401 (loading takes longer than most jobs)
from tcsym.process.recursion import OWN_LIMIT
from tcsym.tuning.workers import HEADER, READY


def main(memory: str) -> None:
    """memory: address space that jobs may use beyond what there is at the first; 0: any."""
    sys.setrecursionlimit(OWN_LIMIT)
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a job prints must not reach the tuner
    sink.write(READY)
    sink.flush()
    limited = int(memory)
    while header := source.read(HEADER.size):
        function, args, kwargs = pickle.loads(source.read(*HEADER.unpack(header)))
        if limited:
            _limit_memory(limited)
            limited = 0
        _answer(sink, _result(function, args, kwargs))


def _result(function: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
    try:
        return True, function(*args, **kwargs)
    except Exception as error:
        return False, error


def _answer(sink: BinaryIO, answer: tuple[bool, Any]) -> None:
    try:
        message = pickle.dumps(answer)
        pickle.loads(message)
    except Exception as error:
        message = pickle.dumps((False, RuntimeError(f"answer that does not pickle: {error}")))
    sink.write(HEADER.pack(len(message)) + message)
    sink.flush()


def _limit_memory(beyond: int) -> None:
    """Once the job's modules are loaded: LLVM alone reserves a lot of address space."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + beyond, most))
