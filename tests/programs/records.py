# SPDX-License-Identifier: Apache-2.0
"""Acceptance programs of part F of the language: records, their inputs, their expected results.

A record is a line of `part_f_*.jsonl`, or of `ragged.jsonl`: a text, sizes to call it with, how to
make its inputs, and what comes out as numpy code, or the kind and place of its error. `./dev
programs` runs them in every way of compiling, `test_programs.py` through the interpreter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Record = dict[str, Any]
Sizes = Mapping[str, int]
_MAKERS: dict[str, Any] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n, low, high: rng.uniform(low, high, n),
    "int": lambda rng, n, low, high: rng.integers(low, high, n) if n else np.zeros(0, int),
    "const": lambda _, n, value: np.full(n, value),
    "perm": lambda rng, n: rng.permutation(n),
    "cumsum": lambda rng, n, most: np.concatenate([[0], rng.integers(0, most + 1, n)]).cumsum()[:n],
}


def records() -> list[Record]:
    files = sorted(Path(__file__).parent.glob("*.jsonl"))
    return [json.loads(line) for f in files for line in f.read_text().splitlines()]


def dtype_named(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def inputs_of(record: Record, sizes: Sizes) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {name: _input(spec, sizes, rng) for name, spec in record["inputs"].items()}


def _input(spec: Mapping[str, Any], sizes: Sizes, rng: np.random.Generator) -> Any:
    shape = [sizes[d] if isinstance(d, str) else d for d in spec["shape"]]
    name, _, rest = spec["gen"].rstrip(")").partition("(")
    arguments = [eval(x, {}, dict(sizes)) for x in re.split(",", rest) if x]
    values = _MAKERS[name](rng, int(np.prod(shape)), *arguments)
    array = np.array(values).reshape(shape).astype(dtype_named(spec["dtype"]))
    match spec.get("layout"):
        case "broadcast":
            return np.broadcast_to(array[:1], array.shape)
        case "strided":
            wide = np.repeat(array, 2, -1)
            return wide[..., ::2]
        case "transposed":
            return np.asfortranarray(array)
        case _:
            return array


def expected(record: Record, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """`expect` is an expression, or code that sets `out`; floating inputs come as float64."""
    names: dict[str, Any] = {"np": np, **sizes}
    for name, x in inputs.items():
        names[name] = x if x.dtype.kind in "biu" else x.astype(np.float64)
    text = record["expect"]
    with np.errstate(all="ignore"):
        exec(text if re.search(r"^out *=", text, re.M) else f"out = {text}", names)
    result: dict[str, Any] = names["out"]
    return result


def tolerance(record: Record, dtype: str) -> tuple[float, float]:
    """(relative, absolute); integers are exact."""
    default = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}.get(dtype, 0.0)
    return record.get("rtol", default), record.get("atol", default)
