# SPDX-License-Identifier: Apache-2.0
"""Failing case -> a smaller one that fails alike: fewer items, simpler terms, smaller sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.fuzz.model import Case

Fails = Callable[[Case], bool]
MAX_TRIES = 200


def reduce_case(case: Case, fails: Fails) -> Case:
    """Greedy: takes the first smaller candidate that still fails, until none does."""
    tries = 0
    progress = True
    while progress and tries < MAX_TRIES:
        progress = False
        for candidate in _smaller(case):
            tries += 1
            if tries > MAX_TRIES:
                break
            if fails(candidate):
                case, progress = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    if len(case.sizes) > 1:
        for sizes in case.sizes:
            yield replace(case, sizes=(sizes,))
    for n in range(len(case.items)):
        items = case.items[:n] + case.items[n + 1 :]
        yield _trimmed(replace(case, items=items, may_fail=True))
    for n in range(len(case.outputs)):
        if len(case.outputs) > 1:
            yield replace(case, outputs=case.outputs[:n] + case.outputs[n + 1 :])
    yield from _plainer_inputs(case)
    for n, item in enumerate(case.items):
        for text in _simpler(item):
            items = (*case.items[:n], text, *case.items[n + 1 :])
            yield _trimmed(
                replace(case, items=items, expected=(), exact=frozenset())
            )  # it has other results
    yield from _smaller_sizes(case)


def _trimmed(case: Case) -> Case:
    """Without outputs, inputs and helpers that nothing mentions any more."""
    body = "\n".join(case.items)
    mentioned = set(re.findall(r"\w+", body))
    helpers = tuple(h for h in case.helpers if mentioned & set(re.findall(r"def (\w+)", h)))
    outputs = tuple(o for o in case.outputs if case.is_assigned(o[0]))
    sizes = set(re.findall(r"\w+", body + " " + " ".join(text for _, text in outputs)))
    kept = tuple(
        i
        for i in case.inputs
        if i.tensor.name in mentioned or sizes & {str(e) for e in i.tensor.shape}
    )
    return replace(case, helpers=helpers, outputs=outputs, inputs=kept)


def _plainer_inputs(case: Case) -> Iterator[Case]:
    for n, spec in enumerate(case.inputs):
        for plain in (replace(spec, layout="plain"), replace(spec, values="tame")):
            if plain != spec and not (plain.values == "tame" and spec.tensor.bound is not None):
                yield replace(case, inputs=(*case.inputs[:n], plain, *case.inputs[n + 1 :]))


def _simpler(item: str) -> Iterator[str]:
    """A `where` clause dropped; a parenthesised piece replaced by one of its operands or by 1."""
    for clause in re.finditer(r", \w+ in [^,\n]*| where [^\n]*", item):
        yield item[: clause.start()] + item[clause.end() :]
    for start in (m.start() for m in re.finditer(r"\(", item)):
        end = _closing(item, start)
        inner = item[start + 1 : end]
        called = re.search(r"\w+$", item[:start])
        head = called.start() if called else start
        if called and not re.fullmatch(r"[a-z]\w*", called.group()):
            continue  # a read
        pieces = _operands(inner)
        for piece in (*pieces, "1", "0.5"):
            if len(piece) < end - head:
                yield item[:head] + piece + item[end + 1 :]


def _closing(text: str, start: int) -> int:
    depth = 0
    for n in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[n], 0)
        if depth == 0:
            return n
    return len(text)


def _operands(inner: str) -> list[str]:
    """The pieces of `inner` between operators outside parentheses."""
    pieces, depth, piece = [], 0, ""
    for token in re.findall(r"\w+|\s+|[^\w\s]+?", inner):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0 and token in "+-*/%<>=!&|?:,":
            pieces.append(piece.strip())
            piece = ""
        else:
            piece += token
    return [p for p in [*pieces, piece.strip()] if p]


def _smaller_sizes(case: Case) -> Iterator[Case]:
    for name in case.sizes[0]:
        for value in (0, 1, 2, 3, 4, 8, 15, 16):
            if all(value < sizes[name] for sizes in case.sizes):
                yield replace(case, sizes=tuple({**s, name: value} for s in case.sizes))
