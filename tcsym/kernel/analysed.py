# SPDX-License-Identifier: Apache-2.0
"""Text -> typed programs, from the code cache or analysed and kept there. Errors are not kept."""

from __future__ import annotations

import marshal

from msgspec.structs import replace

from tcsym.frontend.program import Program
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tcsym.process.config import VERIFY
from tcsym.runtime.cache import MARSHAL, CodeCache
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.versions import compiler_version


def analysed(source: str, filename: str) -> dict[str, Program]:
    """As `compiler.analyse`, without the front end for a text that was seen before."""
    cache = CodeCache.default()
    key = _key(source)
    found = None if VERIFY.read() else cache.read(key)
    if found is not None:
        try:
            programs = programs_from_json(marshal.loads(found[1]))
            return {p.name: replace(p, source=source, filename=filename) for p in programs}
        except (ValueError, TypeError, LookupError, EOFError):
            pass  # not what is written below: analysed and written again
    from tcsym.compiler import analyse  # most processes have seen the text before

    analysis = analyse(source, filename)
    textless = [replace(p, source="", filename="") for p in analysis.values()]
    data = marshal.dumps(programs_to_json(textless), MARSHAL)
    cache.write(key, {"what": f"programs {' '.join(analysis)}"}, data)
    return analysis


def _key(source: str) -> str:
    """A lone surrogate has no UTF-8; such a text is an error, but not here."""
    text = f"programs {compiler_version()}\n{source}"
    return hexdigest(text.encode("utf-8", "surrogatepass"))
