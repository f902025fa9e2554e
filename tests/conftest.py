# SPDX-License-Identifier: Apache-2.0
"""Options of the test suite."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = (5**0.5 - 1) / 2
THINNER = 1.8  # than marks say: the suite has as much time on two cores


def build_native() -> None:
    """Has the tests run the native part that belongs to these sources, where it can be built."""
    built = ROOT / "tcsym/runtime" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    shared = ROOT / "tcsym/artifact/cuda_grids.h"
    sources = [ROOT / "setup.py", shared, *(ROOT / "tcsym/native").iterdir()]
    newest = max(source.stat().st_mtime_ns for source in sources)

    def is_fresh() -> bool:
        return built.exists() and built.stat().st_mtime_ns >= newest

    if not is_fresh():
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--force"]
        subprocess.run(command, cwd=ROOT, check=True)
        assert is_fresh() or not which("cc"), "the native part of the run time does not compile"


if "PYTEST_XDIST_WORKER" not in os.environ and (ROOT / "setup.py").exists():  # else a wheel has it
    build_native()

# compiled code is kept between runs, but not among the user's
CACHE = ROOT / ".pytest_cache" / "tcsym"
os.environ.setdefault("TCSYM_CACHE_DIR", str(CACHE))

# kernels are trees, of which no search finds garbage; searches took a tenth of the suite's time
gc.set_threshold(50_000, 20, 50)

# how long an example takes depends on what else the machine does
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_plugins = ["tests.interpreted", "tests.hosts"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files instead of comparing"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `thinned(every)`, all cases but one in `every` are slow: the first, and
    others by the golden ratio, which is in step with no parameter, however many values it has."""
    seen = Counter[str]()
    for item in items:
        if mark := item.get_closest_marker("thinned"):
            test = item.nodeid.partition("[")[0]
            if seen[test] * GOLDEN % 1 >= 1 / (THINNER * mark.args[0]):
                item.add_marker(pytest.mark.slow)
            seen[test] += 1


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of tuned options that is empty, and nothing that other tests kept but their code."""
    from tcsym.runtime.cache import CodeCache  # not before the native part is built

    load, store, shared = CodeCache.load, CodeCache.store, CodeCache.default()
    monkeypatch.setattr(CodeCache, "load", lambda _, key: load(shared, key))
    monkeypatch.setattr(CodeCache, "store", lambda _, *entry: store(shared, *entry))
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
