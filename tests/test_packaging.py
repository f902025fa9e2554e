# SPDX-License-Identifier: Apache-2.0
"""sdist -> wheel -> fresh environment: every sub-package and data file is there, nothing else."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import tcsym
from tools import release
from tools.interpreters import SUPPORTED

ROOT = Path(__file__).resolve().parent.parent

PROBE = """
import importlib.util, importlib.resources as r, pkgutil, tcsym
others = "torch", "jax", "dask", "xarray"
missing = [f"{n}." for n in others if importlib.util.find_spec(n) is None]
missing += ["torch_internals."] if "torch." in missing else []
for module in pkgutil.walk_packages(tcsym.__path__, "tcsym."):
    if not module.name.endswith("__main__") and not any(n in f"{module.name}." for n in missing):
        importlib.import_module(module.name)
assert r.files("tcsym.frontend").joinpath("grammar.lark").is_file()
assert r.files("tcsym").joinpath("py.typed").is_file()
from tcsym.runtime.native import HAS_ENTRIES
assert HAS_ENTRIES
assert any(p.name.endswith(".json") for p in r.files("tcsym").joinpath("autotune_cache").iterdir())
assert importlib.util.find_spec("frontend") is None
f = tcsym.define("def f(float(N) A) -> (C) { C(i) = 2 * A(i) }")
import numpy as np
assert (f(np.ones(3, np.float32)) == 2).all()
"""


class Built(NamedTuple):
    """What `python -m build` makes: the wheel from the source distribution, unpacked here."""

    sdist: Path
    wheel: Path


def run(*command: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    to = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), cwd=ROOT)
    with tarfile.open(next(to.glob("*.tar.gz"))) as archive:
        archive.extractall(to, filter="data")
    return Built(next(p for p in to.iterdir() if p.is_dir()), next(to.glob("*.whl")))


def in_wheel(wheel: Path, ending: str) -> Message:
    """A file of headers in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(ending))
        return message_from_bytes(archive.read(name))


def test_wheel_from_sdist_works_outside_the_tree(built: Built, tmp_path: Path) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    own = ("tcsym", f"tcsym-{tcsym.__version__}.dist-info")
    assert not [n for n in names if n.split("/")[0] not in own]
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", str(fresh), cwd=tmp_path)
    python = str(fresh / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    run(*pip, str(built.wheel), cwd=tmp_path)
    # dependencies from this environment: a path in a .pth file is searched, its own .pth files
    # (the editable install of the checkout) are not read
    site = next(fresh.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    check = f"{PROBE}\nassert tcsym.__file__.startswith({str(fresh)!r}), tcsym.__file__"
    run(python, "-c", check, cwd=tmp_path)


def test_the_wheel_says_where_it_runs(built: Built) -> None:
    """It has machine code of one kind of processors, and libraries that need such a glibc."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    glibc = max(28, int(platform.libc_ver()[1].split(".")[1]))
    tag = f"{python}-{python}-manylinux_2_{glibc}_x86_64"
    assert built.wheel.name == f"tcsym-{tcsym.__version__}-{tag}.whl"
    assert in_wheel(built.wheel, "/WHEEL").get_all("Tag") == [tag]
    classifiers = in_wheel(built.wheel, "/METADATA").get_all("Classifier", [])
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert {f"Programming Language :: Python :: {v}" for v in SUPPORTED} <= set(classifiers)
    assert release.pythons() == SUPPORTED


def test_a_wheel_that_is_built_elsewhere_claims_no_machine_code(built: Built) -> None:
    """It installs there: `tests/process/test_system.py` has what works."""
    code = (
        "import os, runpy, sys; os.environ['_PYTHON_HOST_PLATFORM'] = 'linux-riscv64';"
        "sys.argv = ['setup.py', '-q', 'bdist_wheel', '--dist-dir', 'there'];"
        "runpy.run_path('setup.py')"
    )
    run(sys.executable, "-c", code, cwd=built.sdist)
    (wheel,) = (built.sdist / "there").iterdir()
    assert wheel.name == f"tcsym-{tcsym.__version__}-py3-none-any.whl"


SETUP = """
import os, platform, runpy, sys, numpy, setuptools
sys.platform, machine = sys.argv[1:]
platform.machine, platform.libc_ver = lambda: machine, lambda: ("", "")
setuptools.setup = lambda **how: print([x.name for x in how.get("ext_modules", ())])
runpy.run_path("setup.py")
print(os.environ.get("MACOSX_DEPLOYMENT_TARGET"))
"""


@pytest.mark.parametrize(
    "system, machine, expected",
    [
        ("darwin", "arm64", "['tcsym.runtime._native']\n14.4\n"),
        ("darwin", "x86_64", "[]\nNone\n"),
        ("freebsd14", "amd64", "[]\nNone\n"),
    ],
)
def test_what_is_built_on_other_systems(system: str, machine: str, expected: str) -> None:
    assert run(sys.executable, "-c", SETUP, system, machine, cwd=ROOT) == expected


def test_windows_is_refused_before_any_dependency_is_built() -> None:
    """By what installers call first."""
    code = (
        "import sys, setuptools.build_meta as backend; sys.platform = 'win32';"
        "backend.get_requires_for_build_wheel()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("tcsym does not run on Windows") and "WSL" in done.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="which files are ours: only git knows")
def test_the_source_distribution_has_all_of_the_checkout(built: Built) -> None:
    ours = run("git", "ls-files", "--cached", cwd=ROOT).splitlines()
    links = {"frontend", "polyhedral", "codegen", "autotune_cache"}
    missing = [f for f in ours if not (built.sdist / f).is_file() and (ROOT / f).is_file()]
    assert set(missing) - links <= {".gitattributes", ".gitignore"}
    assert os.access(built.sdist / "dev", os.X_OK)
    assert "./dev test" in run("./dev", "help", cwd=built.sdist)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/index/test_expr.py"]
    assert "passed" in run(*tests, "-o", "addopts=--import-mode=importlib", cwd=built.sdist)


@pytest.mark.skipif(
    not os.path.lexists(ROOT / "frontend"), reason="the checkout's links: this is no checkout"
)
def test_stages_are_seen_at_the_root() -> None:
    """Links; where a checkout cannot make them, files with the same text."""
    for stage in ("frontend", "polyhedral", "codegen"):
        link = ROOT / stage
        target = os.readlink(link) if link.is_symlink() else link.read_text()
        assert target == f"tcsym/{stage}"
        assert (ROOT / target / "__init__.py").is_file()
    assert list((ROOT / os.readlink(ROOT / "autotune_cache")).glob("*.json"))


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tcsym", "msgspec", "lark", "llvmlite", "islpy", "ml_dtypes"):
            raise ModuleNotFoundError(f"no {name} here", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np, tcsym_runtime
from tcsym_runtime.runtime.native import HAS_ENTRIES
assert HAS_ENTRIES and tcsym_runtime.__version__ == sys.argv[2]
f = tcsym_runtime.load(sys.argv[1])
A = np.arange(12, dtype=np.float32).reshape(3, 4)
for n in (1, 3):
    assert (f(A[:n], A.T.copy()) == A[:n] @ A.T).all()
try:
    f(A, A)
except tcsym_runtime.TCError as error:
    assert error.kind == "size" and "expected (4, 4)" in str(error), error
else:
    raise AssertionError("sizes that disagree were taken")
"""


@pytest.fixture(scope="module")
def runtime(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What is built of tcsym-runtime."""
    to = tmp_path_factory.mktemp("runtime")
    run(sys.executable, "-m", "tools.runtime_package", str(to / "project"), cwd=ROOT)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), cwd=to / "project")
    return Built(next(to.glob("*.tar.gz")), next(to.glob("*.whl")))


def test_the_runtime_runs_artifacts_with_numpy_alone(runtime: Built, tmp_path: Path) -> None:
    mm = tcsym.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    folder, site = mm.export(tmp_path / "mm"), tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site))
    run(*pip, str(runtime.wheel), cwd=tmp_path)
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n{WITHOUT}"
    run(sys.executable, "-c", code, str(folder), tcsym.__version__, cwd=tmp_path)
    assert in_wheel(runtime.wheel, "/METADATA")["Version"] == tcsym.__version__
    needed = in_wheel(runtime.wheel, "/METADATA").get_all("Requires-Dist", [])
    assert [x for x in needed if "extra" not in x] == ["numpy>=1.26"]


def step(name: str) -> str:
    """The shell text of a step of the release."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (found,) = (x["run"] for job in jobs.values() for x in job["steps"] if x.get("name") == name)
    return str(found)


def test_a_release_is_checked_before_it_is_published(
    built: Built, runtime: Built, tmp_path: Path
) -> None:
    """The workflow's own step, on what was built here."""
    ready = tmp_path / "checkout"
    for folder in ("tools", "tcsym"):
        (ready / folder).mkdir(parents=True)
    for name in ("tools/__init__.py", "tools/release.py", "tcsym/__init__.py", "pyproject.toml"):
        if (ROOT / name).exists():
            (ready / name).write_text((ROOT / name).read_text())
    own, dist = tcsym.__version__, ready / "dist"
    changes = ready / "CHANGELOG.md"
    changes.write_text(f"# Changes\n\n## {own} (2030-01-02)\n")
    dist.mkdir()
    shutil.copy(next(built.sdist.parent.glob("*.tar.gz")), dist)
    shutil.copy(runtime.sdist, dist)
    for wheel in (built.wheel, runtime.wheel):
        shutil.copy(wheel, dist / wheel.name.replace("-linux_", "-manylinux_2_28_"))
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    text = step("Check what will be published") + f" --pythons {here}"
    processor = f" --processors {platform.machine()}"  # what was built here

    def check(tag: str, more: str = processor) -> str:
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        command = ["bash", "-euo", "pipefail", "-c", text + more]
        done = subprocess.run(command, cwd=ready, capture_output=True, text=True, env=environment)
        assert (done.returncode == 0) == ("as it should be" in done.stdout), done.stderr
        return done.stdout

    assert "as it should be" in check(f"v{own}")
    assert "the tag is v9.9" in check("v9.9")
    python = f"cp{here.replace('.', '')}"
    others = {"x86_64", "aarch64"} - {platform.machine()}
    lacking = [f"no wheel of {n} for {python} and {p}" for n in release.PARTS for p in others]
    assert check(f"v{own}", "").splitlines() == lacking
    pure = dist / f"tcsym-{own}-py3-none-any.whl"
    shutil.copy(built.wheel, pure)
    assert f"{pure.name}: its platform is any" in check(f"v{own}")
    pure.unlink()
    next(dist.glob("tcsym-*.whl")).unlink()
    assert f"no wheel of tcsym for {python} and {platform.machine()}" in check(f"v{own}")
    changes.write_text(f"# Changes\n\n## {own} (unreleased)\n")
    assert "CHANGELOG.md does not begin" in check(f"v{own}")


def test_both_packages_get_the_same_wheels() -> None:
    """Of the same Pythons and processors, for the same glibc."""
    projects = (ROOT / "pyproject.toml", ROOT / "packaging" / "runtime" / "pyproject.toml")
    own, runtime = (tomllib.loads(p.read_text())["tool"]["cibuildwheel"] for p in projects)
    runtime["build"].append("cp3*-macosx_arm64")  # there are no artifacts for it
    for key in {*own, *runtime} - {"macos", "test-requires", "test-sources", "test-command"}:
        assert own.get(key) == runtime.get(key), key


def test_workflows_have_their_form() -> None:
    files = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    schema = ("--builtin-schema", "vendor.github-workflows")
    run(sys.executable, "-m", "check_jsonschema", *schema, *files, cwd=ROOT)


def test_the_recipe_asks_for_what_the_project_asks_for() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {x.replace(" ", "") for x in recipe["requirements"]["run"]} - {"python>=3.11"}
    assert asked == set(project["dependencies"])
    assert recipe["context"]["version"] == tcsym.__version__
    assert recipe["about"]["license"] == project["license"]


def test_what_contributors_are_told_of_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in re.findall(r"`((?:[\w.]+/)+[\w.]*|\w+\.py)`", text):
        places = [p for p in (ROOT / name, ROOT / "tcsym" / name) if p.exists()]
        assert places or "*" in name, name


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="which files are ours: only git knows")
def test_every_source_says_its_licence() -> None:
    for name in run("git", "ls-files", "--cached", "*.py", "*.c", "*.h", cwd=ROOT).splitlines():
        text = (ROOT / name).read_text() if (ROOT / name).is_file() else ""
        assert not text.strip() or "SPDX-License-Identifier: Apache-2.0" in text[:200], name
