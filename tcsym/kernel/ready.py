# SPDX-License-Identifier: Apache-2.0
"""Text -> how an earlier process served calls of its defs: code and call entries, in one file.

A process that finds it serves calls of dense numpy arrays without the program, the dispatcher and
the compiler; whatever else it needs it loads when that is asked for. The key says all that the
answer depends on: the text, our sources, the processor, the options store. So what is found is what
this process would make itself.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsym.process.config import OPTIONS, VERIFY
from tcsym.process.threads import get_num_threads
from tcsym.runtime.cache import MARSHAL, CodeCache, options_state
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.runtime.processor import processor_marks
from tcsym.runtime.versions import whole_version
from tcsym.target.caches import cache_bytes

if TYPE_CHECKING:
    from tcsym.runtime._native import Entry
    from tcsym.runtime.switch import Switch

# Fields of the `SwitchImage`, seconds after which calls of the same sizes are looked at (0: they
# are not), the region that the code is for (None: all sizes).
KeptSwitch = tuple[tuple[Any, ...], float, int | None]
# A def that was called: object code, manifest of `Compiled`, fields of an `EntryImage`, switch.
Ready = tuple[bytes, dict[str, Any], tuple[Any, ...], KeptSwitch | None]
Function = Callable[..., Any]


def ready(source: str, counted: bool) -> dict[str, Ready | None] | None:
    """The defs of a text in its order, each with what serves it, if a call was kept.

    counted: by strategy `auto`, else `symbolic`.
    """
    key = _key(source, counted)
    found = None if key is None else CodeCache.default().read(key)
    if found is None:
        return None
    try:
        data = marshal.loads(found[1])
    except (ValueError, EOFError, TypeError):
        return None
    return data if isinstance(data, dict) and all(map(_is_ready, data.values())) else None


def _is_ready(made: object) -> bool:
    return made is None or (isinstance(made, tuple) and len(made) == 4)


def forget(source: str, counted: bool) -> None:
    """What was kept of a text's calls cannot be loaded."""
    key = _key(source, counted)
    if key is not None:
        CodeCache.default().remove(key)


def load_kept(
    made: Ready, slow: Function, failed: Callable[[int], None]
) -> tuple[Entry, Switch | None]:
    """The call entry, which passes to `slow` what it does not serve, and the switch before it.

    LoadError for what `keep` would not have written.
    """
    from tcsym.runtime.loader import LoadError

    try:
        entry = _load_ready(made, slow, failed)
        return entry, None if made[3] is None else _load_switch(made[3], entry, slow)
    except (LookupError, TypeError, ValueError) as error:
        raise LoadError(f"damaged: {error}") from None


def _load_ready(made: Ready, slow: Function, failed: Callable[[int], None]) -> Entry:
    from tcsym.runtime.entering import EntryImage
    from tcsym.runtime.kernel_code import KernelCode

    get_num_threads()  # an entry reads it, and leaves deciding it to others
    code, _, fields, _ = made
    return KernelCode(code).enter(EntryImage(*fields), slow, failed)


def _load_switch(kept: KeptSwitch, entry: Entry, slow: Function) -> Switch:
    """The switch; calls go to `entry`: all, or those of its region, and others to `slow`."""
    from tcsym.runtime.switch import Switch, SwitchImage

    fields, _, region = kept
    switch = Switch(SwitchImage(*fields), entry if region is None else slow)
    if region is not None:
        switch.set_region(region, entry)
    return switch


def keep(source: str, counted: bool, names: tuple[str, ...], name: str, made: Ready) -> None:
    """For later processes: how calls of def `name` of a text are served; `names`: all its defs.

    Of several regions of sizes it is the first that was called.
    """
    key = _key(source, counted)
    if key is not None:
        kept: Mapping[str, Ready | None] = ready(source, counted) or {}
        if kept.get(name) is not None and made[3] is not None and made[3][2] is not None:
            return
        data = {n: made if n == name else kept.get(n) for n in names}
        about = {"what": f"calls of {name}"}
        CodeCache.default().write(key, about, marshal.dumps(data, MARSHAL))


def _key(source: str, counted: bool) -> str | None:
    """None where nothing is to be kept."""
    marks = processor_marks()
    if not HAS_ENTRIES or not marks or VERIFY.read() or CodeCache.default().directory is None:
        return None
    state = options_state() if OPTIONS.read() else None
    tuned_as = state, get_num_threads() > 1  # as the stores are asked
    here = (whole_version(), sys.version, np.__version__, marks, cache_bytes(), tuned_as, counted)
    text = f"calls {here}\n{source}"
    return hexdigest(text.encode("utf-8", "surrogatepass"))
