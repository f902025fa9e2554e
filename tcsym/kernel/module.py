# SPDX-License-Identifier: Apache-2.0
"""All defs of one text: `Module`, a mapping of names to kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from sys import modules
from typing import TYPE_CHECKING, Any

from tcsym.kernel import in_torch
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.registry import documented

if TYPE_CHECKING:
    from tcsym.errors import TCWarning
    from tcsym.frontend.program import Program
    from tcsym.kernel.kernel import Make
    from tcsym.kernel.ready import Ready
    from tcsym.kernel.settings import Settings
    from tcsym.runtime.stats import Stats

    Only = Kernel  # which a module of one def is, too
else:
    Only = object

_FUNCTIONS = frozenset(["__name__", "__qualname__"])
_DELEGATED = frozenset([name for name in dir(Kernel) if not name.startswith("_")]) | {"name"}


class Module(Only):
    """The kernels of one text, in text order: `m.name`, `m["name"]`, `for name in m`, `len(m)`.

    With a single def the module is that kernel, too: it can be called and has its attributes. With
    several it has `stats` of all of them. A def whose name is an attribute of the module is reached
    by `m["name"]`.
    """

    warnings: tuple[TCWarning, ...]
    """What the text says and its author may not mean, in text order; `define` warns of it."""

    def __init__(self, kernels: Mapping[str, Kernel], warnings: tuple[TCWarning, ...] = ()) -> None:
        self._kernels = kernels
        self._only = next(iter(kernels.values()))
        self.warnings = warnings
        # As attributes proper they are found without `__getattr__`, which costs more than a call.
        taken = _DELEGATED if len(self._kernels) == 1 else frozenset[str]()
        self.__dict__ |= {
            name: kernel
            for name, kernel in self._kernels.items()
            if name not in taken and not name.startswith("_")
        }

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            raise KeyError(self._unknown(name))
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __contains__(self, name: object) -> bool:
        return name in self._kernels

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_") and name not in _FUNCTIONS:
            raise AttributeError(name)
        if name in _DELEGATED | _FUNCTIONS and len(self._kernels) == 1:
            return getattr(self._only, name)  # type: ignore[no-any-return]
        if name == "stats":
            return self._all_stats()  # type: ignore[return-value]
        raise AttributeError(self._unknown(name))

    def _all_stats(self) -> Stats:
        """What all kernels did so far."""
        from tcsym.runtime.stats import Stats  # most processes only call

        return Stats(lambda: [c for kernel in self._kernels.values() for c in kernel._counters()])

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(name, list(self._kernels), 1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        return f"no def `{name}` among {', '.join(self._kernels)}{hint}"

    def __dir__(self) -> list[str]:
        delegated = _DELEGATED if len(self._kernels) == 1 else frozenset(["stats"])
        return sorted({*super().__dir__(), *self._kernels, *delegated})

    @property
    def _settings(self) -> Settings:
        return self._only.settings

    if not TYPE_CHECKING:  # its types are Kernel's

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            """Call the only def; see `Kernel.__call__`."""
            if len(self._kernels) == 1:
                if "torch" in modules and in_torch.in_graph():
                    return self._only(*args, **kwargs)
                return self._only._entry(*args, **kwargs)
            from tcsym.errors import CallError

            names = ", ".join(self._kernels)
            message = f"this module has {len(self)} defs, it is not one function"
            raise CallError(message, hint=f"call one of them as `m.name(...)`: {names}")

    def _doc(self, of_class: str | None) -> str | None:
        return self._only.__doc__ if len(self._kernels) == 1 else of_class

    def __repr__(self) -> str:
        lines = [f"  {kernel.signature!r}" for kernel in self._kernels.values()]
        return "\n".join(["<tcsym module", *lines]) + ">"

    def _repr_html_(self) -> str:
        from tcsym.kernel.kernel_html import module_html

        return module_html(list(self._kernels.values()), self._settings.source)

    def __reduce__(self) -> tuple[Any, ...]:
        return module_of, (self._settings,)


documented(Module)


def module_of(settings: Settings, programs: Mapping[str, Program] | None = None) -> Module:
    """The module of a text, of which `programs` are known. Errors: all of the compile phase,
    OptionError."""
    from tcsym.process.recursion import depth_checked

    return Module(*depth_checked(_checked)(settings, programs))


def _checked(
    settings: Settings, programs: Mapping[str, Program] | None
) -> tuple[dict[str, Kernel], tuple[TCWarning, ...]]:
    from tcsym.dispatch.choose import require_one_served
    from tcsym.kernel.serving import Text

    text = Text(settings, programs)
    kernels = {n: Kernel(n, _of_text(lambda: text, n)) for n in text.programs}
    require_one_served([kernel._dispatcher.policy for kernel in kernels.values()])
    return kernels, text.warnings


def ready_module(kept: Mapping[str, Ready | None], settings: Callable[[], Settings]) -> Module:
    """The module of a text of which an earlier process kept some calls."""
    made: list[Any] = []

    def text() -> Any:
        from tcsym.kernel.serving import Text

        if not made:
            made.append(Text(settings()))
        return made[0]

    return Module({n: Kernel(n, _of_text(text, n), found) for n, found in kept.items()})


def _of_text(text: Callable[[], Any], name: str) -> Make:
    return lambda kernel: text().serving(name, kernel._checked_call, kernel._install)


def rebuild_kernel(settings: Settings, name: str) -> Kernel:
    """The kernel that was pickled."""
    return module_of(settings)[name]
