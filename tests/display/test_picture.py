# SPDX-License-Identifier: Apache-2.0
"""Pictures: well-formed, the same each time, a sign for each element, words for the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from tcsym.display.page import STYLE
from tcsym.display.picture import Drawn, Picture

SVG = "{http://www.w3.org/2000/svg}"


def tensor(shape: tuple[int, ...], name: str = "X", **given: Any) -> Drawn:
    extents = tuple("NMKBA"[: len(shape)])
    drawn = Drawn(name, "argument", extents, np.zeros(shape, int), np.zeros(shape, bool), {})
    for at, n in given.get("reads", {}).items():
        drawn.reads[at] = n
    for at in given.get("written", ()):
        drawn.written[at] = True
    return Drawn(name, "argument", extents, drawn.reads, drawn.written, given.get("outside", {}))


def texts(picture: Picture) -> list[str]:
    root = ElementTree.fromstring(picture.svg)
    return [x.text or "" for x in root.iter(f"{SVG}text")]


def paths(picture: Picture, mark: str) -> int:
    """How many figures there are in paths with this attribute, those of the legend left out."""
    root = ElementTree.fromstring(picture.svg)
    groups = [x for g in root.findall(f"{SVG}g") for x in g.iter(f"{SVG}path")]
    return sum(x.attrib["d"].count("M") for x in groups if mark in str(x.attrib))


def test_each_kind_of_element_has_its_sign() -> None:
    x = tensor(
        (4, 5),
        reads={(0, 0): 1, (1, 2): 3, (2, 2): 1},
        written=[(3, 4)],
        outside={(-1, 0): 1, (1, 5): 2},
    )
    p = Picture("What", ("X(i) = 1",), (x,))
    assert paths(p, "linecap") == 2  # dots
    assert texts(p).count("3") == 1 + 2 + 1  # a count, two numbers of axes, the legend
    assert paths(p, "dasharray") == 2
    assert paths(p, "'2'") == 1  # a thick border
    assert paths(p, "fill-opacity") == 4
    assert paths(p, "stroke-opacity': '0.3'") == 20
    legend = texts(p)[-5:]
    assert "read once" in legend and "written" in legend
    assert [s for s in legend if s.startswith("outside")]


def test_the_legend_has_only_what_there_is() -> None:
    p = Picture("What", (), (tensor((3,), reads={1: 1}),))
    assert texts(p)[-1] == "read once"
    assert "written" not in texts(p)


def test_it_says_what_it_leaves_out() -> None:
    wide = tensor((3, 100), reads={(0, 50): 1, (2, 90): 1})
    told = " ".join(texts(Picture("What", (), (wide,))))
    assert "columns 48 to 79 of 100 drawn, 1 more are used" in told
    many = tensor((9, 2, 2), reads={(k, 0, 0): 1 for k in range(8)})
    told = " ".join(texts(Picture("What", (), (many,))))
    assert "6 of 9 planes drawn; 2 more are used" in told and "X(5, ·, ·)" in told
    few = tensor((9, 2, 2), reads={(7, 0, 0): 1})
    told = " ".join(texts(Picture("What", (), (few,))))
    assert "1 of 9 planes drawn; the others are not used" in told and "X(7, ·, ·)" in told
    far = tensor((3, 3), reads={(0, 0): 1}, outside={(0, -9): 1, (-4, 0): 1})
    assert " ".join(texts(Picture("What", (), (far,)))).count("further outside not drawn") == 2
    other = tensor((2, 3, 3), reads={(0, 0, 0): 1}, outside={(-1, 0, 0): 1})
    told = " ".join(texts(Picture("What", (), (other,))))
    assert "1 place outside of other axes not drawn" in told


def test_of_many_statements_the_first_are_shown() -> None:
    p = Picture("What", tuple(f"Y(i) = {k}" for k in range(11)), (tensor((2,), reads={0: 1}),))
    assert "Y(i) = 7" in texts(p) and "Y(i) = 8" not in texts(p)
    assert "and 3 statements more" in texts(p)
    assert len(p.statements) == 11


def test_all_ranks_are_drawn() -> None:
    for shape, cells in (((), 1), ((4,), 4), ((2, 3), 6), ((2, 2, 3), 12), ((2, 1, 2, 3), 12)):
        p = Picture("What", (), (tensor(shape, reads={(0,) * len(shape): 2}),))
        assert paths(p, "stroke-opacity': '0.3'") == cells


def test_it_is_read_aloud_and_seen_in_light_and_dark() -> None:
    p = Picture("What <Y> reads", ("Y = a < b",), (tensor((2, 2), reads={(0, 1): 2}),))
    root = ElementTree.fromstring(p.svg)
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title") == "What <Y> reads"
    assert root.findtext(f"{SVG}desc") == "X: 1 of 4 elements read 2 times"
    assert "prefers-color-scheme:dark" in p.svg
    shown = p._repr_html_()
    assert shown.startswith(STYLE) and shown.count("<style>") == 1  # the colours of all displays
    for svg in (p.svg, shown):
        fixed = set(re.findall(r"#[0-9a-f]{6}", re.sub("<style>.*?</style>", "", svg)))
        assert fixed <= {"#3f84c9", "#c8702a"}


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    def make() -> Picture:
        x = tensor((3, 3), reads={(0, 1): 1}, outside={(-1, 0): 1, (3, 2): 4})
        return Picture("What", ("Y(i) +=! X(i)",), (x, tensor((2,), "Y", written=[0])))

    p = make()
    assert str(p) == p.svg == make().svg
    path = p.save(tmp_path / "p.svg")
    assert path.read_text(encoding="utf-8") == p.svg
    assert repr(p) == (
        "<tcsym picture: What; X: 1 of 9 elements read, 2 places outside; Y: 1 of 2 written>"
    )
    assert list(p.reads) == ["X"] and p.writes["Y"].tolist() == [True, False]


def test_nothing_is_wider_than_the_picture() -> None:
    parts = tuple(tensor((3, 30), f"T{k}", reads={(0, 0): 1}) for k in range(4))
    root = ElementTree.fromstring(Picture("What", ("Y(i) = " + "x + " * 90,), parts).svg)
    width = float(root.attrib["viewBox"].split()[2])
    height = float(root.attrib["viewBox"].split()[3])
    for group in root.findall(f"{SVG}g"):
        x, y = map(float, re.findall(r"[\d.]+", group.attrib["transform"]))
        assert x >= 0 and y < height
        for path in group.iter(f"{SVG}path"):
            assert all(x + float(m) < width for m in re.findall(r"M(-?[\d.]+) ", path.attrib["d"]))
