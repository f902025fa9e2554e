# SPDX-License-Identifier: Apache-2.0
"""Archives of object files come back; damaged ones are errors."""

from __future__ import annotations

import pytest

from tcsym.ir.archive import MAGIC, members, pack

OBJECTS = (b"\x7fELF one", b"", b"\x7fELF three!")


def test_members_come_back() -> None:
    assert tuple(members(pack(OBJECTS))) == OBJECTS
    assert pack(OBJECTS).startswith(MAGIC)


def test_one_object_stays_as_it_is() -> None:
    assert pack(OBJECTS[:1]) == OBJECTS[0]
    assert tuple(members(OBJECTS[0])) == OBJECTS[:1]


@pytest.mark.parametrize("keep", [9, 40, 67, 70, len(pack(OBJECTS)) - 3])
def test_cut_archives_are_errors(keep: int) -> None:
    with pytest.raises(ValueError, match="damaged archive"):
        list(members(pack(OBJECTS)[:keep]))
