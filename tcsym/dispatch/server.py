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
from dataclasses import asdict, replace
from typing import Any, BinaryIO

from tcsym.compiled import Compiled
from tcsym.compiler import compile_program
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tcsym.options import Options
from tcsym.target import Target
from tcsym.variants import Layouts, Variants

_LENGTHS = struct.Struct("<II")
_NICENESS = 10


def request(variants: Variants, layouts: Layouts, share: float) -> dict[str, Any]:
    """What to send for one variant. share: of a core, over the time of this work and the next."""
    program = variants.plan.program
    return {
        "program": programs_to_json([program]),
        "source": program.source,
        "filename": program.filename,
        "target": asdict(variants.target),
        "options": variants.options.to_json(),
        "fixed": dict(variants.fixed),
        "layouts": layouts,
        "context": variants.context,
        "share": share,
    }


def answer(data: dict[str, Any], code: bytes) -> Compiled | str:
    """What came back: code, or why there is none."""
    if "error" in data:
        return str(data["error"])
    spent = tuple((stage, ms) for stage, ms in data["milliseconds"])
    return replace(Compiled.from_manifest(data["manifest"], code), milliseconds=spent)


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
            compiled = _compile(data)
        except Exception as e:
            reply = message({"error": f"{type(e).__name__}: {e}"})
        else:
            spent = {"manifest": compiled.manifest(), "milliseconds": compiled.milliseconds}
            reply = message(spent, compiled.object_code)
        sink.write(reply)
        sink.flush()
        time.sleep((time.process_time() - start) * (1 / data["share"] - 1))


def _compile(data: dict[str, Any]) -> Compiled:
    (program,) = programs_from_json(data["program"])
    program = replace(program, source=data["source"], filename=data["filename"])
    options = Options.from_json(data["options"])
    layouts = tuple(data["layouts"])
    context = tuple((name, low, high) for name, low, high in data["context"])
    target, fixed = _target(data["target"]), data["fixed"]
    return compile_program(program, target, options, fixed, layouts, context)


def _target(facts: Any) -> Target:
    return replace(Target(**facts), features=tuple(facts["features"]))


def main() -> None:
    os.nice(_NICENESS)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not reach the answers
    serve(sys.stdin.buffer, sink)
