"""All defs of one text: `Module`, a mapping of names to kernels."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tcsym.errors import NOWHERE, CallError, SizeError
from tcsym.frontend.program import Program
from tcsym.kernel import Kernel, Settings
from tcsym.sizes import Dim, size_value

_DELEGATED = frozenset(name for name in dir(Kernel) if not name.startswith("_")) | {
    "program",
    "settings",
    "stats",
}


class Module:
    """The kernels of one text, in text order: `m.name`, `m["name"]`, `for name in m`, `len(m)`.

    With a single def the module is that kernel, too: it can be called and has its attributes. A def
    whose name is an attribute of the module is reached by `m["name"]`.
    """

    def __init__(self, settings: Settings) -> None:
        from tcsym.compiler import analyse

        programs = analyse(settings.source, settings.filename)
        settings = _validated(settings, programs)
        all_sizes = frozenset(name for p in programs.values() for name in p.sizes)
        self._settings = settings
        self._kernels = {n: Kernel(p, settings, all_sizes) for n, p in programs.items()}

    def __getitem__(self, name: str) -> Kernel:
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __contains__(self, name: object) -> bool:
        return name in self._kernels

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _DELEGATED and len(self._kernels) == 1:
            return getattr(self._only, name)
        if name in self._kernels:
            return self._kernels[name]
        close = difflib.get_close_matches(name, list(self._kernels), 1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        raise AttributeError(f"no def `{name}` among {', '.join(self._kernels)}{hint}")

    def __dir__(self) -> list[str]:
        delegated = _DELEGATED if len(self._kernels) == 1 else frozenset[str]()
        return sorted({*super().__dir__(), *self._kernels, *delegated})

    @cached_property
    def _only(self) -> Kernel:
        return next(iter(self._kernels.values()))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the only def; see `Kernel.__call__`."""
        if len(self._kernels) != 1:
            names = ", ".join(self._kernels)
            message = f"this module has {len(self)} defs, it is not one function"
            raise CallError(message, hint=f"call one of them as `m.name(...)`: {names}")
        return self._only(*args, **kwargs)

    def __repr__(self) -> str:
        lines = [f"  {kernel.signature!r}" for kernel in self._kernels.values()]
        return "\n".join(["<tcsym module", *lines]) + ">"

    def _repr_html_(self) -> str:
        lines = [html.escape(repr(kernel.signature)) for kernel in self._kernels.values()]
        listed = "".join(f"<li><code>{line}</code></li>" for line in lines)
        return f"<ul>{listed}</ul><pre>{html.escape(self._settings.source)}</pre>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Module, (self._settings,)


def _validated(settings: Settings, programs: Mapping[str, Program]) -> Settings:
    """`settings` with its sizes checked against those of the text (LANGUAGE E12)."""
    from dataclasses import replace

    sizes: Any = settings.sizes
    span = next((p.span for p in programs.values()), NOWHERE)

    def error(message: str, hint: str = "") -> SizeError:
        source, filename = settings.source, settings.filename
        return SizeError(message, span=span, source=source, filename=filename, hint=hint)

    if not isinstance(sizes, Mapping):
        raise error(f"`sizes` is {type(sizes).__name__}, expected a mapping of names to sizes")
    known = {name for p in programs.values() for name in p.sizes}
    checked: dict[str, Dim | int] = {}
    for name, value in sizes.items():
        if name not in known:
            hint = f"sizes of this text are {', '.join(sorted(known)) or 'none'}"
            raise error(f"`sizes` has `{name}`, which is no size of this text", hint)
        number = value if isinstance(value, Dim) else size_value(value)
        if number is None or (isinstance(number, int) and not 0 <= number < 1 << 63):
            raise error(f"size `{name}` is {value!r}, expected an integer >= 0 or a tcsym.Dim")
        checked[name] = number
    return replace(settings, sizes=checked)
