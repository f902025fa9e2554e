# SPDX-License-Identifier: Apache-2.0
"""Arrays of a run from and to `.npy` files: `--input X=x.npy`, `--output Y=y.npy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from tcsym.cli.output import nearest
from tcsym.frontend.sample import Array
from tcsym.index.expr import var

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel


def load_inputs(kernel: Kernel, given: tuple[str, ...]) -> dict[str, Array]:
    """NAME=FILE, or FILE alone for a single input. UsageError, ClickException: with the reason."""
    named = _by_name(given, list(kernel.signature.inputs), "input")
    return {name: _load(path) for name, path in named.items()}


def check_outputs(kernel: Kernel, given: tuple[str, ...]) -> dict[str, str]:
    """Where outputs go. UsageError before anything runs."""
    names = [*kernel.signature.outputs, *kernel.signature.inouts]
    return _by_name(given, names, "output")


def save_outputs(where: Mapping[str, str], results: Mapping[str, Array]) -> None:
    for name, path in where.items():
        array = results[name]
        if array.dtype.name == "bfloat16":
            raise click.ClickException(f"`{name}` is bfloat16, which .npy has not; cast it first")
        try:
            np.save(path, array, allow_pickle=False)
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def sizes_of_arrays(kernel: Kernel, arrays: Mapping[str, Array]) -> dict[str, int]:
    """The sizes that shapes of arrays say; whether they agree is for the call to check."""
    found: dict[str, int] = {}
    for name, array in arrays.items():
        shape = kernel.signature.inputs[name].shape
        for extent, n in zip(shape, array.shape):
            found |= {size: n for size in extent.variables() if extent == var(size)}
    return found


def _by_name(given: tuple[str, ...], names: list[str], kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals and len(names) == 1:
            name, path = names[0], text
        if not path.endswith(".npy"):
            raise click.UsageError(f"--{kind} {text}: expected NAME=FILE.npy")
        if name not in names:
            near = nearest(name, names) or f"{kind}s are {', '.join(names)}"
            raise click.UsageError(f"no {kind} `{name}`; {near}")
        if name in found:
            raise click.UsageError(f"{kind} `{name}` is given twice")
        found[name] = path
    return found


def _load(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise click.ClickException(f"cannot read {path}: {error}") from error
