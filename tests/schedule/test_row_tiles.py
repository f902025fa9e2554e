# SPDX-License-Identifier: Apache-2.0
"""Rows of register tiles: addresses without clamps in full ones, blocks of as many rows."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Read
from tcsym.index.expr import Index, Min, ceildiv, index, minimum, var
from tcsym.ir.bounds import least
from tcsym.ir.loops import Kernel, Update, block
from tcsym.ir.traverse import subvalues
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.plan_text import choices_lines
from tests.schedule.naive import par
from tests.schedule.targets import AVX2


def _clamps(k: Kernel, x: Update) -> bool:
    reads = [r for r in subvalues(x.value) if isinstance(r, Read) and not k.buffer(r.tensor).padded]
    terms = [t for r in reads for s in r.subscripts if isinstance(s, Index) for t, _ in s.terms]
    return any(isinstance(t, Min) for t in terms)


@pytest.mark.parametrize("order", ["b,o", "o,b"])
def test_rows_of_a_block_need_not_be_the_last_loop(order: str) -> None:
    """W(o) moves with o: only rows b use it again."""
    source = f"""def bilinear(float(B,I) X, float(O,I,J) W, float(B,J) Y) -> (Z) {{
  t({order},j) +=! X(b,i) * W(o,i,j)
  Z({order}) +=! t({order},j) * Y(b,j)
}}"""
    p = analyse(source)["bilinear"]
    mapped = map_cpu(schedule_program(p, Options(), {}).kernel, AVX2, Options())
    plans = "".join(text for text, _ in choices_lines(mapped.choices, mapped.kernel.sizes, {}))
    assert "order o b.tile" in plans


def test_the_least_value_of_a_blocks_rows_is_known() -> None:
    left = var("n") - var("t") * 4
    t = par("t", ceildiv(var("n"), 4), block())
    assert least(left, (t,)) == 1
    assert least(minimum(index(4), left), (t,)) == 1
    assert least(minimum(index(0), left), (t,)) == 0
    assert least(var("n") - var("t") * 3, (t,)) is None
