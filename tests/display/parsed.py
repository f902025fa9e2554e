# SPDX-License-Identifier: Apache-2.0
"""HTML of a cell -> its lines, folds, tables and words. Tags must be closed in order."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"br", "hr", "img"}


class Page(HTMLParser):
    """headers, paragraphs: their texts. lines: of code, in order, with those in closed folds, whose
    numbers are `hidden_lines`. notes: of folds, in place of what they hide. folds: (line, lines
    inside). tables: rows of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.headers: list[str] = []
        self.paragraphs: list[str] = []
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.folds: list[tuple[str, list[str]]] = []
        self.hidden_lines: set[int] = set()
        self.tables: list[list[list[str]]] = []
        self.svg_texts: list[str] = []
        self.shapes: list[tuple[str, dict[str, str | None]]] = []
        self.left_out = 0
        self._text = ""
        self._folds: list[int] = []  # of the open folds, the first line inside; -1 without a line

    @staticmethod
    def of(html: str) -> Page:
        page = Page()
        page.feed(html)
        page.close()
        assert not page.open, page.open
        for text in page.paragraphs:
            if " left out here" in text:
                page.left_out = int(text.split()[0])
        return page

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shapes.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in _VOID, f"<{tag}> is not closed"
        self.open.append((tag, dict(attrs)))
        if tag in ("div", "summary", "header", "p", "td", "th", "text", "title"):
            self._text = ""
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag not in ("div", "span"):
            self.shapes.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        opened, attrs = self.open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
        text, self._text = self._text, self._text if tag in ("span", "code", "b", "i") else ""
        match tag:
            case "header":
                self.headers.append(text)
            case "p":
                self.paragraphs.append(text)
            case "td" | "th":
                self.tables[-1][-1].append(text)
            case "text":
                self.svg_texts.append(text)
            case "summary":
                self._begin_fold(text, attrs)
            case "div" if self._is_code():
                self._line(text, attrs)
            case "details":
                first = self._folds.pop()
                if first >= 0:
                    self.folds.append((self.lines[first - 1], self.lines[first:]))
                    self.folds.sort(key=lambda fold: self.lines.index(fold[0]))

    def _is_code(self) -> bool:
        return any((attrs.get("class") or "") == "code" for _, attrs in self.open)

    def _line(self, text: str, attrs: dict[str, str | None]) -> None:
        if attrs.get("class") == "more":
            self.notes.append(text)
            return
        self.lines.append(text)
        if any(tag == "details" and "open" not in attrs for tag, attrs in self.open):
            self.hidden_lines.add(len(self.lines) - 1)

    def _begin_fold(self, text: str, attrs: dict[str, str | None]) -> None:
        if attrs.get("class") == "more":
            self.notes.append(text)
            self._folds.append(-1)
            return
        # The line of a fold is seen where the folds around it are open.
        (_, own) = self.open.pop()
        self._line(text, {})
        self.open.append(("details", own))
        self._folds.append(len(self.lines))
