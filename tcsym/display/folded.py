# SPDX-License-Identifier: Apache-2.0
"""Lines of a stage -> HTML that folds, by indentation or function; what does not run is closed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from tcsym.display.coloured import rows
from tcsym.display.page import framed, paragraph, row_html

MOST_LINES = 4000  # a notebook keeps its outputs in its file
_TITLES = {
    "syntax": "text",
    "ranges": "ranges of indices",
    "scop": "statements and their accesses",
    "schedule": "order, proved",
    "loops": "loops as scheduled",
    "plan": "plans of the nests",
    "mapped": "mapped loops",
    "llvm": "LLVM IR",
    "asm": "machine code",
    "cuda": "grids as C++",
    "ptx": "PTX",
    "sass": "machine code of the device",
    "variants": "versions",
}
_BEGINS = {  # a function
    "llvm": re.compile(r"define "),
    "asm": re.compile(r"[A-Za-z_][^\s\"]*:"),
    "ptx": re.compile(r"(\.visible )?\.(entry|func) "),
}


def folded(text: str, stage: str, idle: Collection[int] = ()) -> str:
    """The text as the output of a cell. idle: the lines that do not run."""
    lines = text.splitlines()
    told = f"{len(lines)} lines"
    if idle:
        told = f"{len(lines) - len(idle)} of {len(lines)} lines run at these sizes"
    shown, rest = lines[:MOST_LINES], len(lines) - MOST_LINES
    html = [row_html(row) for row in rows("\n".join(shown), stage)]
    depths = _by_function(shown, stage) if stage in _BEGINS else _by_indentation(shown)
    heads = sum(d == 0 for d in depths)
    tree = _Tree(html, depths, idle, closed=stage in _BEGINS and heads > 1)
    cut = paragraph(f"{rest} more lines: print it to see all") if rest > 0 else ""
    body = f'<div class="code">{"".join(tree.between(0, len(shown)))}</div>'
    return framed(stage, f"{_TITLES.get(stage, '')} · {told}".lstrip(" ·"), body, cut)


class _Tree:
    """Lines that are inside of those before them with less depth."""

    def __init__(
        self, html: Sequence[str], depths: Sequence[int], idle: Collection[int], closed: bool
    ) -> None:
        self._html, self._depths, self._idle, self._closed = html, depths, idle, closed

    def between(self, start: int, end: int, inside_idle: bool = False) -> Iterator[str]:
        k = start
        while k < end:
            if not inside_idle and k in self._idle:
                last = self._same(k, end)
                yield (
                    f'<details><summary class="more">{self._pad(k)}… {last - k} '
                    f"line{'s' * (last - k > 1)} for other sizes</summary>"
                )
                yield from self.between(k, last, True)
                yield "</details>"
                k = last
                continue
            last = self._inside(k, end)
            if last == k + 1:
                yield f"<div>{self._html[k]}</div>"
            else:
                opened = "" if self._closed else " open"
                yield f"<details{opened}><summary>{self._html[k]}</summary>"
                yield from self.between(k + 1, last, inside_idle)
                yield "</details>"
            k = last

    def _inside(self, k: int, end: int) -> int:
        """Behind the last line inside of this one."""
        last = k + 1
        while last < end and self._depths[last] > self._depths[k]:
            last += 1
        return last

    def _same(self, k: int, end: int) -> int:
        """Behind the last of the lines from here on that do not run."""
        last = k + 1
        while last < end and last in self._idle:
            last += 1
        return last

    def _pad(self, k: int) -> str:
        return "  " * self._depths[k]


def _by_indentation(lines: Sequence[str]) -> list[int]:
    return [len(line) - len(line.lstrip(" ")) if line.strip() else 0 for line in lines]


def _by_function(lines: Sequence[str], stage: str) -> list[int]:
    """All of a function is inside of the line that begins it."""
    begins = _BEGINS[stage]
    depths: list[int] = []
    inside = False
    for line in lines:
        if begins.match(line):
            depths.append(0)
            inside = True
        else:
            depths.append(int(inside))
            inside = inside and line != "}"
    return depths
