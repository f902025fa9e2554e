"""llvmlite.binding as `llvm`, for all of the package: imported without `importlib.resources`.

llvmlite asks that for the place of its library alone, and with all that it loads (zipfile, urllib,
tempfile) importing it takes a third longer. Who else asks for it meanwhile gets the real one,
through a module that loads it when something but that place is asked for.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

_RESOURCES = "importlib.resources"


class _Directory(str):
    """The place of a package, as far as llvmlite uses it: `/` a file's name."""

    __slots__ = ()

    def __truediv__(self, name: str) -> str:
        return os.path.join(self, name)


class _Resources(ModuleType):
    """`importlib.resources`, of which two functions are enough for llvmlite."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(), name)

    @staticmethod
    def files(package: Any) -> Any:
        if package != "llvmlite.binding":
            return _real().files(package)
        return _Directory(os.path.dirname(str(sys.modules[package].__file__)))

    @staticmethod
    def as_file(path: Any) -> AbstractContextManager[Any]:
        return nullcontext(path) if isinstance(path, str) else _real().as_file(path)


def _real() -> Any:
    if isinstance(sys.modules.get(_RESOURCES), _Resources):
        del sys.modules[_RESOURCES]
    return importlib.import_module(_RESOURCES)


def _prepare() -> bool:
    if "llvmlite.binding" in sys.modules or _RESOURCES in sys.modules:
        return False
    stand_in = _Resources(_RESOURCES)
    sys.modules[_RESOURCES] = stand_in
    importlib.resources = stand_in  # stays until the real one is imported, which replaces it
    return True


_prepared = _prepare()
try:
    import llvmlite.binding as llvm
finally:
    if _prepared and isinstance(sys.modules.get(_RESOURCES), _Resources):
        del sys.modules[_RESOURCES]

__all__ = ["llvm"]
