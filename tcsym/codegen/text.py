"""LLVM IR as text: a module, and a function that is being written.

Pure instructions are numbered: the same text within the same dominating scope is written once, so
the cheap pipeline needs no common-subexpression pass. Everything mutable here lives for one `emit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Module:
    """Declarations and finished functions."""

    def __init__(self) -> None:
        self.declarations: dict[str, None] = {}
        self.functions: list[str] = []
        self.names: set[str] = set()

    def declare(self, result: str, name: str, parameters: str) -> None:
        self.declarations[f"declare {result} @{name}({parameters}) nounwind"] = None

    def text(self, attributes: str) -> str:
        return "\n".join([*sorted(self.declarations), *self.functions, attributes, ""])


class Function:
    """One function. `current` is the label of the block being written."""

    def __init__(self, module: Module, head: str) -> None:
        self.module = module
        self.head = head
        self.allocas: list[str] = []
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.current = "start"
        self._count = 0
        self._known: dict[Any, Any] = {}
        self._added: list[list[Any]] = [[]]

    def new_register(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def result(self, instruction: str) -> str:
        """Write an instruction with a result."""
        name = self.new_register()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str, epoch: str = "") -> str:
        """The result of a pure instruction, written only if not available (`epoch`: for loads)."""
        key = instruction + epoch
        known = self._known.get(key)
        if known is None:
            known = self.result(instruction)
            self.remember(key, known)
        return str(known)

    def remember(self, key: Any, value: Any) -> None:
        """Note a value that is available until the end of the scope."""
        self._known[key] = value
        self._added[-1].append(key)

    def recall(self, key: Any) -> Any:
        """What was noted under the key in a scope that is still open, or None."""
        return self._known.get(key)

    def do(self, instruction: str) -> None:
        self.lines.append("  " + instruction)

    def alloca(self, kind: str, align: int) -> str:
        self._count += 1
        name = f"%a{self._count}"
        self.allocas.append(f"  {name} = alloca {kind}, align {align}")
        return name

    def new_label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.current = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, then: str, orelse: str, likely: bool | None = None) -> None:
        weights = "" if likely is None else f", !prof !{int(likely)}"
        self.do(f"br i1 {condition}, label %{then}, label %{orelse}{weights}")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is written inside is not available afterwards (a block that may not run)."""
        self._added.append([])
        yield
        for key in self._added.pop():
            del self._known[key]

    @contextmanager
    def when(self, condition: str, likely: bool | None = None) -> Iterator[None]:
        """Blocks written inside run only if `condition`."""
        then, end = self.new_label("then"), self.new_label("end")
        self.branch(condition, then, end, likely)
        self.start_block(then)
        with self.scope():
            yield
        self.jump(end)
        self.start_block(end)

    def finish(self) -> None:
        body = "\n".join([*self.allocas, *self.entry, *self.lines])
        self.module.functions.append(f"{self.head} {{\nstart:\n{body}\n}}\n")
