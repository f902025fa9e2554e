"""On a machine with a CUDA device and torch: programs, tests, times, each into a file of OUT.

    ./dev gpu [OUT]                      with .venv, which needs torch
    ./dev gpu --pack DIR [--python 3.12] what a machine without network lacks, put into DIR
    ./dev gpu --from DIR [OUT]           there: with $PYTHON (python3), which has torch, and DIR

OUT/gpu.json says of each step how it ended and how long it took. `--seconds` is for all of them:
a step that is running then is ended, later ones are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools import build_pycuda

ROOT = Path(__file__).resolve().parent.parent
# What is not in every environment that has torch.
PACKED = ("islpy", "lark", "msgspec", "ml_dtypes", "llvmlite", "click", "rich")
PACKED += ("markdown-it-py", "mdurl", "pygments", "pytest", "pluggy", "iniconfig", "packaging")
PYCUDA_NEEDS = ("pytools", "platformdirs", "mako", "markupsafe", "siphash24", "typing_extensions")
GLIBC = (17, 24, 27, 28, 31, 34, 35)
PROGRAMS = "programs"


class Step(NamedTuple):
    """`sync`: calls raise what their kernels find."""

    name: str
    command: tuple[str, ...]
    sync: bool = False


class Done(NamedTuple):
    """code: None: there was no time."""

    name: str
    code: int | None
    seconds: float


def steps(python: str, out: Path, programs: Path) -> Iterator[Step]:
    """Those that can be taken here, what tells most for its time first."""
    tests = python, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "device"
    of_device = (*tests, "tests/runtime/test_on_device.py")
    yield Step("doctor", (python, "-m", "tcsym", "doctor"))
    yield Step("tests", of_device)
    runner = programs / "run.py"
    if runner.is_file():
        given = (str(x) for x in sorted(programs.glob("*.jsonl")))
        yield Step("programs", (python, str(runner), *given, "--mode", "device"), sync=True)
    yield Step("times", (python, "-m", "tools.device_benchmark", str(out / "times.json")))
    if shutil.which("compute-sanitizer"):
        for tool in ("memcheck", "racecheck"):
            checked = "compute-sanitizer", "--tool", tool, "--error-exitcode", "1"
            yield Step(tool, (*checked, *of_device, "-k", "products"))


def run(
    all_steps: Sequence[Step], out: Path, seconds: float, environment: dict[str, str]
) -> list[Done]:
    """Each step into its file; a step that fails does not end the others."""
    end, found = time.monotonic() + seconds, list[Done]()
    for step in all_steps:
        begun = time.monotonic()
        code: int | None = None
        if begun < end:
            say(f"{step.name}: {out / step.name}.txt")
            given = {**environment, **({"TCSYM_SYNC": "1"} if step.sync else {})}
            with (out / f"{step.name}.txt").open("w") as file:
                pipes = {"stdout": file, "stderr": subprocess.STDOUT}
                try:
                    code = subprocess.run(
                        step.command, cwd=ROOT, env=given, timeout=end - begun, **pipes
                    ).returncode  # type: ignore[call-overload]
                except subprocess.TimeoutExpired:
                    say(f"{step.name}: ended after {end - begun:.0f} s")
        found.append(Done(step.name, code, round(time.monotonic() - begun, 1)))
        report = [d._asdict() for d in found]
        (out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    return found


def pack(to: Path, version: str, without: frozenset[str]) -> None:
    """Wheels for that Python, pycuda's sources, and the acceptance programs if they are found."""
    to.mkdir(parents=True, exist_ok=True)
    platforms = [x for n in GLIBC for x in ("--platform", f"manylinux_2_{n}_x86_64")]
    platforms += ["--platform", "manylinux2014_x86_64", "--platform", "any"]
    wheels = ("--only-binary=:all:", "--python-version", version, "--implementation", "cp")
    for name in (n for n in (*PACKED, *PYCUDA_NEEDS) if n not in without):
        build_pycuda.pip("download", "--no-deps", "-d", str(to), *wheels, *platforms, name)
    if not list(to.glob("pycuda-*.tar.gz")):
        build_pycuda.download(to)
    runner = Path(os.environ.get("TCSYM_PROGRAMS", ROOT.parent / "shared" / PROGRAMS))
    if (runner / "run.py").is_file():
        shutil.copytree(runner, to / PROGRAMS, dirs_exist_ok=True)
    print(f"{sum(x.stat().st_size for x in to.rglob('*') if x.is_file()) / 2**20:.0f} MiB in {to}")


def unpack(source: Path, out: Path) -> Path:
    """A folder for PYTHONPATH with what this interpreter lacks; pycuda is built if it must be."""
    site = out / "site"
    missing = [n for n in (*PACKED, *PYCUDA_NEEDS) if not is_there(n)]
    offline = "--no-index", "--no-deps", "--no-compile", "--target", str(site)
    for name in missing:
        wheels = list(source.glob(f"{name.replace('-', '_')}-*.whl"))
        if not wheels:
            raise SystemExit(f"gpu: this Python lacks {name}, which is not in {source}")
        build_pycuda.pip("install", *offline, *map(str, wheels))
    if not is_there("pycuda"):
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        if not (made := list(source.glob(f"pycuda-*-{tag}-*.whl"))):
            root = build_pycuda.cuda_root()
            if root is None:
                raise SystemExit("gpu: no CUDA toolkit here to build pycuda with (cuda.h, nvcc)")
            (archive,) = source.glob("pycuda-*.tar.gz")
            build_pycuda.build(root, out, archive)
            made = list(out.glob(f"pycuda-*-{tag}-*.whl"))
        build_pycuda.pip("install", *offline, str(made[0]))
    return site


def is_there(package: str) -> bool:
    module = {"markdown-it-py": "markdown_it", "siphash24": "siphash24"}.get(package, package)
    found = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
    return found.returncode == 0


def say(text: str) -> None:
    print(f"gpu: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev gpu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--pack", type=Path, metavar="DIR")
    parser.add_argument("--python", default="3.12", help="version that `--pack` is for")
    parser.add_argument("--without", default="", metavar="llvmlite", help="what is there already")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--steps", default="", metavar="doctor,tests", help="only these")
    given = parser.parse_args()
    if given.pack:
        pack(given.pack, given.python, frozenset(given.without.split(",")))
        return 0
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT)]
    if given.source:
        paths.insert(0, str(unpack(given.source.resolve(), out)))
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(build, cwd=ROOT, check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    probe = "import torch; assert torch.cuda.is_available(); import pycuda"
    if subprocess.run([sys.executable, "-c", probe], env=environment).returncode:
        say("no torch with a CUDA device, or no pycuda, in this interpreter")
        return 1
    packed = given.source / PROGRAMS if given.source else ROOT.parent / "shared" / PROGRAMS
    programs = Path(os.environ.get("TCSYM_PROGRAMS", packed))
    only = set(filter(None, given.steps.split(",")))
    all_steps = [s for s in steps(sys.executable, out, programs) if not only or s.name in only]
    failed = [d.name for d in run(all_steps, out, given.seconds, environment) if d.code != 0]
    if failed:
        say(f"failed: {' '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
