# SPDX-License-Identifier: Apache-2.0
"""Fields of AArch64's instructions, and what a loader says of objects for other processors.

Code is loaded and run by the suite on x86-64, and by `./dev arm` on an emulated AArch64.
"""

from __future__ import annotations

import pytest

import tcsym
from tcsym.runtime.loader import PAGE, LoadError, _field, load_object

ADRP, ADD, LDR_Q, BL = 0x90000000, 0x91000000, 0x3DC00000, 0x94000000  # with zeros in their fields


@pytest.mark.parametrize("pages", [0, 1, -1, 2, 3, 1 << 19, -(1 << 20), (1 << 20) - 1])
def test_pages(pages: int) -> None:
    """21 bits, of which two lie apart; from wherever in a page to wherever in another."""
    place = (1 << 33) + 20
    word = ADRP | _field("page", place // PAGE * PAGE + pages * PAGE + 123, place)
    low, high = word >> 29 & 3, word >> 5 & (1 << 19) - 1
    found = high << 2 | low
    assert (found - (1 << 21) if found >> 20 else found) == pages
    assert word & ~(3 << 29 | (1 << 19) - 1 << 5) == ADRP


@pytest.mark.parametrize("instructions", [0, 5, -5, (1 << 25) - 1, -(1 << 25)])
def test_jumps(instructions: int) -> None:
    word = BL | _field("jump", 4 * instructions, 0)
    found = word & (1 << 26) - 1
    assert (found - (1 << 26) if found >> 25 else found) == instructions and word >> 26 == BL >> 26


@pytest.mark.parametrize("unit, word", [(1, ADD), (16, LDR_Q)])
def test_places_in_a_page(unit: int, word: int) -> None:
    found = word | _field(unit, 7 * PAGE + 0x5A0, 0)
    assert (found >> 10 & 0xFFF) * unit == 0x5A0 and found & ~(0xFFF << 10) == word


@pytest.mark.parametrize(
    "form, value", [("jump", 1 << 27), ("jump", -(1 << 27) - 4), ("page", 1 << 32), (16, 8)]
)
def test_out_of_reach(form: str | int, value: int) -> None:
    with pytest.raises(OverflowError):
        _field(form, value, 0)


def test_objects_of_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """On either, what is for the other."""
    from tcsym.compiler import Lowering, analyse
    from tcsym.target.names import resolve_target

    (program,) = analyse("def f(float(N) X) -> (Y) { Y(i) = X(i) }").values()
    for target, name in (("cpu:neon", "x86_64"), ("cpu:avx2", "aarch64")):
        layouts = ("dense", "dense")
        stages = Lowering(program, resolve_target(target), tcsym.Options(), {}, layouts, (), {})
        code = stages.begun(stages.mapped(stages.scheduled()))
        texts = list[str]()
        code.write(code.missing(), texts.append)
        made = stages.backend.assemble(texts[0], resolve_target(target))
        monkeypatch.setattr("tcsym.process.system.system", lambda name=name: ("linux", name))
        with pytest.raises(LoadError, match=f"not a relocatable object for {name}"):
            load_object(made, lambda _: 0)
        monkeypatch.undo()
