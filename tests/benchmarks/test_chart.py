# SPDX-License-Identifier: Apache-2.0
"""The chart and the table of docs/performance.md."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.chart import CHART, DATA, GROUPS, PAGE, svg_text, table_text, write
from tests.pages import ROOT


def test_chart_and_table_are_of_the_kept_measurements(tmp_path: Path) -> None:
    data = json.loads((ROOT / DATA).read_text())
    page = tmp_path / PAGE.name
    shutil.copy(ROOT / PAGE, page)
    write(data, page, tmp_path / CHART.name)
    assert page.read_text() == (ROOT / PAGE).read_text()
    assert (tmp_path / CHART.name).read_text() == (ROOT / CHART).read_text()


def test_a_bar_is_the_mean_of_the_fastest_others() -> None:
    ratios = [{"torch": 1.0, "torch out=": 8.0, "jax": 3.0}, {"torch": 4.0}]
    rows = [
        {"label": "tmm_1", "class": "contractions", "threads": 1, "ms": 1.0, "ratios": found}
        for found in ratios
    ]
    machines = {"1": "Some & one"}
    data = {"rows": rows, "machines": machines, "date": "2026-01-02T", "commit": "abcdef123"}
    text = svg_text({**data, "rows": [*rows, *_one_of_each()]})
    ElementTree.fromstring(text)
    assert ">2.00×<" in text and "one core of an Some &amp; one, 2026-01-02" in text
    line = table_text(data).splitlines()[-1]
    assert line == "| all | 2 |  | 2.00 | 3.00 |  |  | **2.00** | 1.00 |"


def _one_of_each() -> list[dict[str, object]]:
    others = [beginnings[0] for beginnings in GROUPS.values()][1:]
    return [{"label": name, "class": "others", "ratios": {"numpy": 1.0}} for name in others]
