"""A kernel -> one that does it for each element of a batch, or gives back what it would update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct

from tcsym.errors import OptionError
from tcsym.kernel.definition import define

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


class Batch(Struct, frozen=True):
    """`outputs`: names of the results that have the batch in front; others do not depend on it."""

    kernel: Kernel
    outputs: frozenset[str]


_made: WeakKeyDictionary[Kernel, dict[frozenset[str], Batch]] = WeakKeyDictionary()


def batched_kernel(kernel: Kernel, inputs: Iterable[str] | None = None) -> Batch:
    """`kernel` with another dimension in front of `inputs`, by default of all.

    Settings stay. Errors: OptionError for what is no input, or if there is none.
    """
    known = [t.name for t in kernel.program.inputs]
    given = frozenset(known if inputs is None else [inputs] if isinstance(inputs, str) else inputs)
    for name in sorted(given):
        if name not in known:
            hint = f"inputs are {', '.join(known)}"
            raise OptionError(f"{kernel.name} has no input `{name}` to batch", hint=hint)
    if not given:
        raise OptionError(f"{kernel.name}: no input is batched")
    found = _made.setdefault(kernel, {})
    if given not in found:
        found[given] = _batch(kernel, given)
    return found[given]


def functional_kernel(kernel: Kernel) -> Kernel:
    """`kernel` with results in place of updates. Settings stay."""
    from tcsym.batch.functional import functional_source

    own = kernel.settings
    module = define(
        functional_source(kernel.source, kernel.name),
        sizes=own.sizes,
        strategy=own.strategy,
        target=own.target,
        options=own.options,
        recompute=own.recompute,
        filename=f"<{kernel.name} without updates>",
    )
    return module[kernel.name]


def _batch(kernel: Kernel, inputs: frozenset[str]) -> Batch:
    from tcsym.batch.source import batched_source

    made = batched_source(kernel.source, kernel.name, inputs)
    own = kernel.settings
    module = define(
        made.source,
        sizes={n: d for n, d in own.sizes.items() if n in kernel.program.sizes},
        strategy=own.strategy,
        target=own.target,
        options=own.options,
        recompute=own.recompute,
        filename=f"<{kernel.name} for a batch>",
    )
    return Batch(module[made.name], made.outputs)
