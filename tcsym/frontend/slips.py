# SPDX-License-Identifier: Apache-2.0
"""What parses, and is another language's reduction: `Y(i) argmax=! X(i,j)`, two statements here.

The first would call a def `Y`, the second assign `argmax`. Their errors would say nothing of what
is meant, so the text is refused at the word.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tcsym.errors import TCSyntaxError
from tcsym.frontend import ast
from tcsym.frontend.idioms import reduction_hint


def refuse_reductions(module: ast.Module) -> None:
    """Errors: TCSyntaxError at the first word that stands where a reduction would."""
    defs = {d.name for d in module.defs}
    found = [word for d in module.defs for word in _words(d.body, defs)]
    if not found:
        return
    first = min(found, key=lambda s: (s.span.line, s.span.column))
    end = first.span.column - 1 + first.span.length
    behind = module.source.split("\n")[first.span.line - 1][end:].lstrip()
    shown = first.target + ("=!" if behind.startswith("=!") else "=")
    error = TCSyntaxError(
        f"`{shown}` is no reduction: those are `+=`, `*=`, `min=`, `max=`",
        span=first.span,
        hint=reduction_hint(first.target),
    )
    raise error.with_source(module.source, module.filename)


def _words(items: tuple[ast.Item, ...], defs: set[str]) -> Iterator[ast.Assign]:
    """Assignments to what stands in one line behind a call of no def."""
    for a, b in pairwise(items):
        if not isinstance(a, ast.CallStatement) or a.targets or a.function.name in defs:
            continue
        match b:
            case ast.Assign(_, None, "=") if a.span.line == b.span.line:
                yield b
            case _:
                pass
    for item in items:
        match item:
            case ast.For():
                yield from _words(item.body, defs)
            case ast.If():
                yield from _words(item.then, defs)
                yield from _words(item.orelse, defs)
            case _:
                pass
