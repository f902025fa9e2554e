# SPDX-License-Identifier: Apache-2.0
"""LLVM IR as text: a module, and a function that is being written.

Pure instructions are numbered: the same text within the same dominating scope is written once.
Inside `at(level)` they are written in front of the loop of that nesting depth. So the cheap
pipeline needs neither a common-subexpression pass nor loop-invariant code motion. Everything
mutable here lives for one `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

_HERE = 1 << 30
WEIGHTS = (  # metadata that branches and loads refer to
    '!0 = !{!"branch_weights", i32 1, i32 1000}\n!1 = !{!"branch_weights", i32 1000, i32 1}\n'
    "!2 = !{i32 1}"
)
N_WEIGHTS = 3


class OpenLoop(Struct):
    """A loop around the place being written.

    `before`: lines in front of it, where its `scope` begins; they run only if it has an iteration.
    `stored`: buffers written in it. `number`: different for every loop of the function.
    """

    before: list[str]
    scope: int
    stored: frozenset[str]
    number: int
    is_reduction: bool = False


class Module:
    """Declarations and finished functions; `head` and `attributes` begin and end its text.

    `parts`: modules of their own with functions that this one declares, by the function's name;
    each is written when its text is first asked for.
    """

    def __init__(self, head: str, attributes: str) -> None:
        self.head = head
        self.attributes = attributes
        self._write: Callable[[Module], None] | None = None
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.names: set[str] = set()
        self.parts: dict[str, Module] = {}

    def declare(self, result: str, name: str, parameters: str) -> None:
        self.declarations[name] = f"declare {result} @{name}({parameters}) nounwind"

    def part(self, name: str, write: Callable[[Module], None]) -> None:
        """A new part, to which `write` adds that function. Parts of a part belong to the whole."""
        part = self.parts[name] = Module(self.head, self.attributes)
        part.parts = self.parts
        part._write = write

    def count(self, kind: str) -> int:
        """Number of parts whose names begin so."""
        return sum(name.startswith(kind) for name in self.parts)

    def written(self) -> Module:
        """This module with its functions. Writing that was interrupted begins anew."""
        if self._write is not None:
            self.declarations, self.functions, self.names = {}, [], set()
            self._write(self)
            self._write = None
        return self

    def calls(self) -> list[str]:
        """The parts with functions that this module calls."""
        return [name for name in self.written().declarations if name in self.parts]

    def text(self) -> str:
        """This module alone."""
        self.written()
        return self._text(self.declarations, self.functions)

    def whole_text(self) -> str:
        """This module and its parts as one."""
        every = [m.written() for m in (*self.parts.values(), self)]
        declarations = {n: d for m in every for n, d in m.declarations.items()}
        outside = {n: d for n, d in declarations.items() if n not in self.parts}
        functions = dict.fromkeys(f for m in every for f in m.functions)
        return self._text(outside, list(functions))

    def _text(self, declarations: dict[str, str], functions: list[str]) -> str:
        declared = sorted(declarations.values())
        return self.head + "\n".join([*declared, *functions, self.attributes, ""])


class Function:
    """One function. `current` is the label of the block being written.

    `loops`: the open loops, outermost first. `level`: pure instructions go in front of that loop,
    if there are so many. `certain`: what stands here runs in every iteration of the loops from that
    on. `arm`: what would go in front of fewer loops than that of it goes in front of it instead.
    """

    def __init__(self, module: Module, head: str) -> None:
        self.module = module
        self.head = head
        self.allocas: list[str] = []
        self.entry: list[str] = []
        self.lines: list[str | list[str]] = []
        self.current = "start"
        self.loops: list[OpenLoop] = []
        self.level = _HERE
        self.certain = 0
        self.arm: tuple[int, OpenLoop] | None = None
        self._count = 0
        self._known: dict[Any, tuple[Any, int]] = {}
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
        key = instruction + epoch  # as `recall` and `remember`, in one: hot
        front = self._front()
        scope = len(self._added) - 1 if front is None else front.scope
        known = self._known.get(key)
        if known is not None and known[1] <= scope:
            return str(known[0])
        self._count += 1
        name = f"%t{self._count}"
        place = self.lines if front is None else front.before
        place.append(f"  {name} = {instruction}")
        self._known[key] = (name, scope)
        self._added[scope].append(key)
        return name

    def _front(self) -> OpenLoop | None:
        """In front of what pure instructions go; None: here."""
        level = self.level
        if self.arm is not None and level < self.arm[0]:
            return self.arm[1]
        return self.loops[level] if level < len(self.loops) else None

    def _scope(self) -> int:
        """Number of the scope in which pure instructions are being written."""
        front = self._front()
        return len(self._added) - 1 if front is None else front.scope

    def remember(self, key: Any, value: Any) -> None:
        """Note a value that is available until the end of the scope being written in."""
        scope = self._scope()
        self._known[key] = (value, scope)
        self._added[scope].append(key)

    def recall(self, key: Any) -> Any:
        """What was noted under the key and is available where instructions go, or None."""
        known = self._known.get(key)
        return known[0] if known is not None and known[1] <= self._scope() else None

    def at(self, level: int) -> _At:
        """Pure instructions inside depend on `level` loops only: they go in front of the next."""
        return _At(self, level)

    def do(self, instruction: str) -> None:
        self.lines.append("  " + instruction)

    def call(self, result: str, name: str, *arguments: str) -> str:
        """Declare and call a function, by arguments with their types; "" for one without result."""
        self.module.declare(result, name, ", ".join(x.rpartition(" ")[0] for x in arguments))
        call = f"call {result} @{name}({', '.join(arguments)})"
        if result != "void":
            return self.result(call)
        self.do(call)
        return ""

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
        before, self.certain = self.certain, len(self.loops)
        self._added.append([])
        yield
        self._close()
        self.certain = before

    @contextmanager
    def rare(self) -> Iterator[None]:
        """As `scope`, for a block that seldom runs: loops around it compute nothing for it."""
        before, lines = self.arm, list[str]()
        self.lines.append(lines)
        with self.scope():
            here = OpenLoop(lines, len(self._added) - 1, frozenset(), 0)
            self.arm = (len(self.loops), here)
            with self.scope():
                yield
        self.arm = before

    def _close(self) -> None:
        keys = self._added.pop()
        scope = len(self._added)
        for key in keys:
            if self._known[key][1] == scope:
                del self._known[key]

    @contextmanager
    def loop(
        self, stored: frozenset[str], is_reduction: bool = False, is_certain: bool = False
    ) -> Iterator[None]:
        """The block in front of a loop was started; inside, jump to the loop and write it.

        is_certain: it has an iteration whenever it is reached.
        """
        self._count += 1
        before: list[str] = []
        self.lines.append(before)
        self.loops.append(OpenLoop(before, len(self._added), stored, self._count, is_reduction))
        self._added.append([])
        certain = self.certain
        if not is_certain:
            self.certain = len(self.loops) - 1
        self._added.append([])
        yield
        self._close()
        self._close()
        self.certain = certain
        self.loops.pop()

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
        parts = [x if isinstance(x, str) else "\n".join(x) for x in self.lines if x]
        body = "\n".join([*self.allocas, *self.entry, *parts])
        self.module.functions.append(f"{self.head} {{\nstart:\n{body}\n}}\n")


class _At:
    """`with f.at(level)` (a class, because it is entered for every index expression)."""

    __slots__ = ("before", "function", "level")

    def __init__(self, function: Function, level: int) -> None:
        self.function = function
        self.level = level

    def __enter__(self) -> None:
        f = self.function
        self.before = f.level
        if self.level < f.level:
            f.level = self.level

    def __exit__(self, *_: object) -> None:
        self.function.level = self.before
