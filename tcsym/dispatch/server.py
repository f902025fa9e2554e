"""A process that compiles what it is sent, slowly if so asked: work that no call has to wait for.

In another process neither Python's lock nor LLVM's is taken from the user's threads. Messages on
standard input and output are JSON with bytes behind: two lengths, then both. It ends with its
input.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, assert_never

from msgspec import to_builtins
from msgspec.structs import replace

from tcsym.compiler import compile_program
from tcsym.dispatch.requests import AnyWork, Refining, Weighing, Work
from tcsym.frontend.program import Program
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tcsym.ir.compiled import Compiled
from tcsym.options import Options
from tcsym.process.recursion import OWN_LIMIT
from tcsym.sizes.context import Known
from tcsym.target.target import Target

if TYPE_CHECKING:
    from tcsym.dispatch.making import Making
    from tcsym.dispatch.refine import Contest

_LENGTHS = struct.Struct("<II")
_NICENESS = 10


def asked(work: AnyWork) -> dict[str, Any]:
    """What to send for one work. share: of a core, over the time of this work and the next."""
    match work:
        case Work(variants, layouts, share):
            text = _text(variants.plan.program, variants.target, variants.options)
            code = {"fixed": dict(variants.fixed), "context": variants.context}
            return {**text, **code, "layouts": layouts, "share": share}
        case Weighing(making, sizes, bound, threads, share):
            measured = {"sizes": sizes, "bound": bound, "threads": threads}
            return {"kernel": _kernel(making), **measured, "share": share}
        case Refining(making, sizes, threads, share):
            candidates = [options.to_json() for options in making.candidates]
            kernel = {**_kernel(making), "threads": threads, "candidates": candidates}
            return {"kernel": kernel, "refined": sizes, "share": share}
        case _:
            assert_never(work)


def told(work: AnyWork, data: dict[str, Any], code: bytes) -> Any:
    """What came back, as `work.done` is told it: why there is none, or nothing to tell."""
    if "error" in data:
        return str(data["error"])
    match work:
        case Work():
            spent = tuple((stage, ms) for stage, ms in data["milliseconds"])
            return replace(Compiled.from_manifest(data["manifest"], code), milliseconds=spent)
        case Weighing():
            from tcsym.dispatch.compare_entries import Weighed

            return (Weighed.from_json(data["weighed"]), data["why"]) if data else None
        case Refining():
            from tcsym.dispatch.refine import Refined

            if not data:
                return None
            return Refined(Options.from_json(data["options"]), data["before"], data["seconds"])
        case _:
            assert_never(work)


def _kernel(making: Making) -> dict[str, Any]:
    plan = making.plan
    declared: dict[str, Any] = {
        plan.sizes[k]: (d.lo, d.hi, d.multiple_of) for k, d in plan.promises.items()
    }
    given = _text(plan.program, making.target, making.options)
    return {**given, "declared": {**declared, **making.known}}


def _text(program: Program, target: Target, options: Options) -> dict[str, Any]:
    return {
        "program": programs_to_json([program]),
        "source": program.source,
        "filename": program.filename,
        "target": to_builtins(target),
        "options": options.to_json(),
    }


def message(data: dict[str, Any], code: bytes = b"") -> bytes:
    text = json.dumps(data, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(text), len(code)) + text + code


def lengths(head: bytes) -> tuple[int, int]:
    """Bytes of JSON and of code behind the head of a message."""
    first, second = _LENGTHS.unpack(head)
    return first, second


HEAD_BYTES = _LENGTHS.size


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while head := source.read(HEAD_BYTES):
        n_text, _ = lengths(head)
        data = json.loads(source.read(n_text))
        start = time.process_time()
        try:
            reply = _answer(data)
        except Exception as e:
            reply = message({"error": f"{type(e).__name__}: {e}"})
        sink.write(reply)
        sink.flush()
        time.sleep((time.process_time() - start) * (1 / data["share"] - 1))


def _answer(data: dict[str, Any]) -> bytes:
    if "refined" in data:
        return _refine(data)
    return _weigh(data) if "sizes" in data else _compiled(data)


def _compiled(data: dict[str, Any]) -> bytes:
    compiled = _compile(data)
    spent = {"manifest": compiled.manifest(), "milliseconds": compiled.milliseconds}
    return message(spent, compiled.object_code)


def _weigh(data: dict[str, Any]) -> bytes:
    """What `dispatch.weigh` measures, or what an earlier process did."""
    from tcsym.dispatch.compare_entries import weigh
    from tcsym.dispatch.recorded_choice import keep, recall
    from tcsym.process.threads import set_num_threads

    set_num_threads(data["threads"])  # options are tuned for one, or for several
    making = _making(data["kernel"])
    weighed = recall(making, data["bound"])
    if weighed is not None:
        return message({"weighed": weighed.to_json(), "why": "measured before"})
    sizes = [tuple(values) for values in data["sizes"]]
    weighed = weigh(making, sizes, data["bound"], data["threads"])
    if weighed is None:
        return message({})
    keep(making, data["bound"], weighed)
    return message({"weighed": weighed.to_json(), "why": "measured beside the calls"})


def _refine(data: dict[str, Any]) -> bytes:
    """What `dispatch.refine` measures."""
    from tcsym.dispatch.refine import keep
    from tcsym.process.threads import set_num_threads

    kernel, sizes = data["kernel"], tuple(data["refined"])
    set_num_threads(kernel["threads"])  # options are tuned for one, or for several
    contest = _contest(json.dumps(kernel))
    found = contest.fastest(sizes, kernel["threads"])
    if found is None:
        return message({})
    keep(contest.making, sizes, found)
    figures = {"before": found.before, "seconds": found.seconds}
    return message({"options": found.options.to_json(), **figures})


@lru_cache(8)
def _contest(kernel: str) -> Contest:
    """Made once: the code of its candidates is kept from one choice of sizes to the next."""
    from tcsym.dispatch.refine import Contest

    return Contest(_making(json.loads(kernel)))


def _making(data: dict[str, Any]) -> Making:
    from tcsym.dispatch.making import Making
    from tcsym.runtime.plan import plan_call
    from tcsym.runtime.stats import Counters
    from tcsym.sizes.dims import Dim

    declared = {n: v if isinstance(v, int) else Dim(*v) for n, v in data["declared"].items()}
    target = Target.from_json(data["target"])
    plan = plan_call(_program(data), declared, frozenset(), target)
    return Making(plan, target, Options.from_json(data["options"]), Counters())


def _program(data: dict[str, Any]) -> Program:
    (program,) = programs_from_json(data["program"])
    return replace(program, source=data["source"], filename=data["filename"])


def _compile(data: dict[str, Any]) -> Compiled:
    program = _program(data)
    options = Options.from_json(data["options"])
    layouts = tuple(data["layouts"])
    context = tuple(Known(*known) for known in data["context"])
    target, fixed = Target.from_json(data["target"]), data["fixed"]
    return compile_program(program, target, options, fixed, layouts, context)


def main() -> None:
    os.nice(_NICENESS)
    sys.setrecursionlimit(OWN_LIMIT)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not reach the answers
    serve(sys.stdin.buffer, sink)
