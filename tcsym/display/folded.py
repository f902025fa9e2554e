# SPDX-License-Identifier: Apache-2.0
"""Lines of a stage -> HTML that folds, by indentation or function; what does not run is closed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tcsym.display.coloured import Piece, rows
from tcsym.display.page import framed, paragraph, row_html

MOST = 32_000  # characters of code; their HTML, three to six times that, is kept in notebooks
MOST_NOTES = 3  # lines of comments that are shown open
_TITLES = {
    "syntax": "text",
    "ranges": "ranges of indices",
    "scop": "statements and their accesses",
    "schedule": "order, proved",
    "loops": "loops as scheduled",
    "plan": "plans of the nests",
    "mapped": "mapped loops",
    "costs": "what plans take",
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
    """The text as the output of a cell. idle: the lines that do not run.

    Of more than `MOST` characters, the lines that do not run are counted only, then the last ones.
    """
    lines = text.removesuffix("\n").split("\n")
    told = _count(len(lines), "line")
    if idle:
        serve = "serve" if stage == "plan" else "run at"
        told = f"{len(lines) - len(idle)} of {told} {serve} these sizes"
    depths = _by_function(lines, stage) if stage in _BEGINS else _by_indentation(lines)
    is_long = len(text) > MOST
    end = _end(lines, idle) if is_long else len(lines)
    shown = rows("\n".join(lines[:end]), stage)
    tree = _Tree(shown, depths, idle, _closed(lines, depths, stage), is_long)
    body = f'<div class="code">{"".join(tree.between(0, end))}</div>'
    left = sum(k not in idle for k in range(end, len(lines)))
    cut = f"{_count(left, 'more line')} left out here; `print` shows all" if left else ""
    return framed(stage, f"{_TITLES.get(stage, '')} · {told}".lstrip(" ·"), body, paragraph(cut))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _closed(lines: Sequence[str], depths: Sequence[int], stage: str) -> frozenset[int]:
    """Lines that are closed at first: functions where there are several, long heads of kernels."""
    if stage in _BEGINS:
        heads = [k for k, depth in enumerate(depths) if depth == 0]
        return frozenset(heads if len(heads) > 1 else ())
    return frozenset(k for k, line in enumerate(lines) if line.startswith("kernel "))


def _end(lines: Sequence[str], idle: Collection[int]) -> int:
    """Behind the last line to show, where only those that run take room."""
    room = MOST
    for k, line in enumerate(lines):
        room -= 0 if k in idle else len(line) + 1
        if room < 0:
            return k
    return len(lines)


class _Tree:
    """Lines that are inside of those before them with less depth."""

    def __init__(
        self,
        lines: Sequence[Sequence[Piece]],
        depths: Sequence[int],
        idle: Collection[int],
        closed: Collection[int],
        counts_idle: bool,
    ) -> None:
        self._lines, self._depths, self._idle = lines, depths, idle
        self._closed, self._counts_idle = closed, counts_idle

    def between(self, start: int, end: int, inside_idle: bool = False) -> Iterator[str]:
        k = start
        while k < end:
            if not inside_idle and k in self._idle:
                last = self._run(k, end, self._is_idle)
                inside = [] if self._counts_idle else self.between(k, last, True)
                told = f"{self._pad(k)}… {_count(last - k, 'line')} for other sizes"
                yield from _hidden(told, inside)
            elif k > 0 and self._run(k, end, self._is_note) > k + MOST_NOTES:
                last = self._run(k, end, self._is_note)
                yield from _hidden(f"… {last - k} notes", map(self._line, range(k, last)))
            elif (last := self._inside(k, end)) > k + 1:
                opened = "" if k in self._closed else " open"
                yield f"<details{opened}><summary>{row_html(self._lines[k])}</summary>"
                yield from self.between(k + 1, last, inside_idle)
                yield "</details>"
            else:
                yield self._line(k)
            k = last

    def _line(self, k: int) -> str:
        return f"<div>{row_html(self._lines[k])}</div>"

    def _inside(self, k: int, end: int) -> int:
        """Behind the last line inside of this one."""
        last = k + 1
        while last < end and self._depths[last] > self._depths[k]:
            last += 1
        return last

    def _run(self, k: int, end: int, is_one: Callable[[int], bool]) -> int:
        """Behind the last of the lines from here on that are such; `k` where it is none."""
        while k < end and is_one(k):
            k += 1
        return k

    def _is_idle(self, k: int) -> bool:
        return k in self._idle

    def _is_note(self, k: int) -> bool:
        return any(kind == "c" and text.startswith("#") for kind, text in self._lines[k][:1])

    def _pad(self, k: int) -> str:
        return " " * self._depths[k]


def _hidden(told: str, inside: Iterable[str]) -> Iterator[str]:
    """What opens to show what is inside; of nothing, the line alone."""
    html = "".join(inside)
    if html:
        yield f'<details><summary class="more">{told}</summary>{html}</details>'
    else:
        yield f'<div class="more">{told}</div>'


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
