"""sdist -> wheel -> fresh environment: every sub-package and data file is there, nothing else."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROBE = """
import importlib.util, importlib.resources as r, pkgutil, tcsym
for module in pkgutil.walk_packages(tcsym.__path__, "tcsym."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert r.files("tcsym.frontend").joinpath("grammar.json").is_file()
assert r.files("tcsym").joinpath("py.typed").is_file()
from tcsym.runtime.own_objects import NAMES, shipped
assert all(map(shipped, NAMES))
assert any(p.name.endswith(".json") for p in r.files("tcsym").joinpath("autotune_cache").iterdir())
assert importlib.util.find_spec("frontend") is None
f = tcsym.define("def f(float(N) A) -> (C) { C(i) = 2 * A(i) }")
import numpy as np
assert (f(np.ones(3, np.float32)) == 2).all()
"""


def run(*command: str, cwd: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_from_sdist_works_outside_the_tree(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), cwd=ROOT)
    wheel = next(tmp_path.glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert not [
        n for n in names if n.split("/")[0] in ("frontend", "polyhedral", "codegen", "tests")
    ]
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", str(fresh), cwd=tmp_path)
    python = str(fresh / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel), cwd=tmp_path)
    # dependencies from this environment: a path in a .pth file is searched, its own .pth files
    # (the editable install of the checkout) are not read
    site = next(fresh.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    check = f"{PROBE}\nassert tcsym.__file__.startswith({str(fresh)!r}), tcsym.__file__"
    run(python, "-c", check, cwd=tmp_path)


def test_stages_are_seen_at_the_root() -> None:
    """Links; where a checkout cannot make them, files with the same text."""
    for stage in ("frontend", "polyhedral", "codegen"):
        link = ROOT / stage
        target = os.readlink(link) if link.is_symlink() else link.read_text()
        assert target == f"tcsym/{stage}"
        assert (ROOT / target / "__init__.py").is_file()
    assert list((ROOT / os.readlink(ROOT / "autotune_cache")).glob("*.json"))
