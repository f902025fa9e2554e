# SPDX-License-Identifier: Apache-2.0
"""Programs of part F through the interpreter: hand-written results, errors with their places."""

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError
from tests.programs.records import Record, dtype_named, expected, inputs_of, records, tolerance

RECORDS = records()


def _run(record: Record, sizes: dict[str, int]) -> tuple[dict[str, object], dict[str, object]]:
    kernel = tcsym.define(record["source"])[record["entry"]]
    inputs = inputs_of(record, sizes)
    out = kernel.reference(**inputs, sizes=sizes)
    names = list(kernel.signature.outputs)
    return inputs, dict(zip(names, out if len(names) > 1 else (out,)))  # None: there are none


@pytest.mark.parametrize("record", [r for r in RECORDS if r["valid"]], ids=lambda r: r["name"])
def test_values(record: Record) -> None:
    for sizes in record["sizes"]:
        inputs, got = _run(record, sizes)
        for name, want in expected(record, inputs, sizes).items():
            value, dtype = np.asarray(got[name]), record["out_dtypes"][name]
            relative, absolute = tolerance(record, dtype)
            assert value.dtype == dtype_named(dtype)
            np.testing.assert_allclose(
                value.astype(float), np.asarray(want).astype(float), relative, absolute
            )


@pytest.mark.parametrize("record", [r for r in RECORDS if not r["valid"]], ids=lambda r: r["name"])
def test_errors(record: Record) -> None:
    want, sizes = record["error"], dict(record.get("sizes") or {})
    if want["phase"] == "compile":
        with pytest.raises(TCError) as e:
            tcsym.define(record["source"])
    else:
        tcsym.define(record["source"])
        with pytest.raises(TCError) as e:
            _run(record, sizes)
    assert (e.value.kind, e.value.line, e.value.column) == (
        want["kind"],
        want["line"],
        want["column"],
    )
    assert want.get("contains", "") in str(e.value)
