# SPDX-License-Identifier: Apache-2.0
"""Images that sums would convert for every term: through a copy, converted once."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.frontend.program import Cast, Read
from tcsym.ir.loops import Kernel, Update
from tcsym.ir.traverse import subvalues, walk
from tcsym.options import Options
from tcsym.schedule.analysis.casts import under_casts
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.map_cpu import map_cpu, nests
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.stage.convert_windows import convert_windows
from tcsym.target.machine import Machine
from tests.schedule.compare import arguments
from tests.schedule.execute import execute
from tests.schedule.targets import AVX2, AVX512, DOTS


def conv(kind: str, image: str, weight: str, index: str = "y+i,x+j", wide: str = "float") -> str:
    """image, weight: their other subscripts around or behind those of the window."""
    at, f = image.replace("*", index), weight.replace("*", "i,j")
    names = {"c": "C", "i": "K", "j": "L", "o": "O"}
    shape = ",".join(names[x] for x in f.split(","))
    box = image.replace("*", "H,W").replace("c", "C").replace("n", "N")
    left = "n,y,x,o" if "o" in weight else image.replace("*", "y,x")
    return f"""def f({kind}({box}) X, {kind}({shape}) F) -> (Y) {{
      Y({left}) +=! {wide}(X({at})) * {wide}(F({f}))
    }}"""


LAST = conv("half", "n,*,c", "*,c,o")
STRIDED = conv("uint8", "n,*,c", "*,c,o", "2*y+i,x+2*j")
INTEGERS = conv("int16", "n,*,c", "*,c,o", wide="int32")
HALVES = conv("half", "n,*,c", "*,c,o", wide="")
FIRST = conv("half", "n,c,*", "o,c,*")
DEPTHWISE = conv("bfloat16", "n,c,*", "c,*")
DEPTHWISE_LAST = conv("half", "n,*,c", "*,c")
TWICE = """def f(int8(N,H,C) X, float(K,C,O) F) -> (Y) {
  Y(n,y,o) +=! float(int32(X(n,y+i,c))) * F(i,c,o)
}"""


def copied(source: str, target: Machine = AVX512) -> Kernel | None:
    kernel = schedule_program(analyse(source)["f"], Options(), {}).kernel
    setting = Setting(target, Options(), Names.of(kernel), [])
    found = convert_windows(kernel, nests(kernel.body)[0], setting)
    return None if found is None else found.kernel


def converted_in_sums(kernel: Kernel) -> set[str]:
    found = set()
    for x, _ in walk(kernel.body):
        for v in subvalues(x.value) if isinstance(x, Update) else ():
            read = under_casts(v) if isinstance(v, Cast) else None
            found |= {read.tensor} if isinstance(read, Read) else set()
    return found


@pytest.mark.parametrize("source", [LAST, STRIDED, HALVES, TWICE])
def test_sums_read_converted_images(source: str) -> None:
    new = copied(source)
    assert new is not None
    assert "X" not in converted_in_sums(new)
    copies = [b.name for b in new.buffers if b.name.startswith("X_wide")]
    assert len(copies) == 1


@pytest.mark.parametrize("source", [FIRST, DEPTHWISE])
def test_windows_along_memory_are_converted_in_lanes_that_have_masks(source: str) -> None:
    assert copied(source) is None
    new = copied(source, AVX2)
    assert new is not None and "X" not in converted_in_sums(new)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (conv("bfloat16", "n,*,c", "*,c,o"), DOTS),  # products of pairs convert nothing
        (INTEGERS, DOTS),
        (conv("float", "n,*,c", "*,c,o", wide=""), AVX512),
        (conv("float", "n,*,c", "*,c,o", wide="half"), AVX512),  # to a shorter type
        (DEPTHWISE_LAST, AVX512),  # read by one sum for each point of the window
        (conv("half", "n,*,c", "*,c,o", "y,x"), AVX512),  # no window
        ("def f(half(N,H,C) X, half(K,C,O) F) -> (Y) {"
         " Y(n,y,o) +=! F(i,c,o) > 0 ? float(X(n,y+i,c)) : 0.0 }", AVX512),
    ],
)  # fmt: skip
def test_what_stays(source: str, target: Machine) -> None:
    assert copied(source, target) is None


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        *((x, "cpu") for x in (LAST, STRIDED, INTEGERS, HALVES, TWICE)),
        *((x, "cpu:avx2") for x in (LAST, FIRST, DEPTHWISE)),
    ],
)
def test_results(source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    m, random = tcsym.define(source, target=target), np.random.default_rng(0)
    for n, k in ((0, 1), (1, 1), (7, 3), (19, 3), (3, 0)):
        sizes = {"N": 2, "C": n, "H": 8, "W": 5 + n, "O": 9, "K": k, "L": max(k, 1)}
        values = [
            random.integers(0, 4, [sizes[str(e)] for e in x.shape]).astype(x.dtype.numpy)
            for x in m.signature.inputs.values()
        ]
        np.testing.assert_array_equal(m(*values), m.reference(*values))


@pytest.mark.parametrize("sizes", [{"W": 7, "K": 0}, {"W": 0, "K": 3}, {"W": 7, "K": 3}])
def test_a_copy_that_sums_of_no_terms_leave_unfilled_is_not_read(sizes: dict[str, int]) -> None:
    source = """def f(int16(C,W) X, int16(O,C,K) F) -> (Y) {
  Y(o,x) +=! int32(X(c,min(max(x+k-2,0),W-1))) * int32(F(o,c,k)) * int32(F(o,c,k))
      where x in 0:W, k in 0:K
}"""
    naive = schedule_program(analyse(source)["f"], Options(), {}).kernel
    kernel, sizes = map_cpu(naive, AVX2, Options()).kernel, {**sizes, "C": 1, "O": 2}
    assert {"X_chosen.1", "X_chosen.1_wide.1"} <= {b.name for b in kernel.buffers}
    given = arguments(naive, sizes)
    expected = {name: x.copy() for name, x in given.items()}
    execute(naive, sizes, expected, unset=["Y"])
    execute(kernel, sizes, given, unset=["Y"])
    np.testing.assert_array_equal(given["Y"], expected["Y"])
