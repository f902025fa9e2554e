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
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site))
    run(*pip, str(wheel), cwd=tmp_path)
    # -S: no .pth files, so that an editable install of the checkout is not on the path
    paths = [str(site), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    probe = f"import sys; sys.path[:0] = {paths!r}\n{PROBE}"
    check = f"{probe}\nassert tcsym.__file__.startswith({str(site)!r}), tcsym.__file__"
    run(sys.executable, "-S", "-c", check, cwd=tmp_path)
