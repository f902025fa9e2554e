# SPDX-License-Identifier: Apache-2.0
"""Ready kernels, one `.tc` file each: `tcsym.library.matmul(A, B)`.

    from tcsym import library
    Y = library.softmax(X)                                   # compiled once for all sizes
    kernel = library.load("conv2d", sizes={"KH": 3, "KW": 3})  # with settings of your own
    print(library.source("softmax"))                         # to copy and change

`library.names()` lists them; the first lines of a file say what it computes and for which sizes its
options are tuned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcsym.errors import OptionError
from tcsym.process.forks import inside
from tcsym.process.outside_graphs import outside_graphs

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from tcsym.kernel.definition import Defined
    from tcsym.kernel.kernel import Kernel
    from tcsym.sizes.dims import Dim

__all__ = ["description", "load", "names", "path", "sizes", "source"]

SIZES = "Sizes:"  # a line of the comment that says for which sizes options are tuned


def names() -> tuple[str, ...]:
    """Names of all kernels, sorted."""
    return tuple(sorted(p.stem for p in _folder().glob("*.tc")))


def path(name: str) -> Path:
    """The file of a kernel. Errors: OptionError for an unknown name."""
    if name not in names():
        import difflib

        close = difflib.get_close_matches(name, names(), 3)
        hint = f"did you mean {', '.join(close)}?" if close else "library.names() lists them"
        raise OptionError(f"no kernel `{name}` in the library", hint=hint)
    return _folder() / f"{name}.tc"


def source(name: str) -> str:
    """The text of a kernel."""
    return path(name).read_text(encoding="utf-8")


def description(name: str) -> str:
    """What a kernel computes: the comment at the top of its file, on one line."""
    lines = [line[1:].strip() for line in source(name).splitlines() if line.startswith("#")]
    return " ".join(line for line in lines if not line.startswith(SIZES))


def sizes(name: str) -> dict[str, Dim]:
    """Ranges of sizes that a kernel is meant for: what its options are tuned and shipped for.

    They restrict nothing: a kernel serves all sizes.
    """
    import re

    from tcsym.sizes.dims import Dim

    (line,) = (x for x in source(name).splitlines() if x.startswith(f"# {SIZES}"))
    found = re.findall(r"(\w+)=(\d+)\.\.(\d+)", line)
    return {size: Dim(int(low), int(high)) for size, low, high in found}


@outside_graphs
@inside
def load(name: str, **settings: Unpack[Defined]) -> Kernel:
    """The kernel with settings as for `tcsym.define` (sizes, strategy, target, options)."""
    from tcsym.kernel.definition import define

    return define(source(name), filename=f"library/{name}.tc", **settings)[name]


def _folder() -> Path:
    from pathlib import Path

    return Path(__file__).parent


def __getattr__(name: str) -> Kernel:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        kernel = load(name)
    except OptionError as error:
        message = f"module 'tcsym.library' has no kernel `{name}`: {error.hint}"
        raise AttributeError(message) from error
    globals()[name] = kernel
    return kernel


def __dir__() -> list[str]:
    return sorted((*__all__, *names()))
