# SPDX-License-Identifier: Apache-2.0
"""Whether a folder has what a release has: `python -m tools.release FOLDER [--tag v1.2.3]`.

Of tcsym and of tcsym-runtime: one source distribution, with the C sources; one wheel for each
supported Python and kind of processor, with the compiled module, all of one version, to which the
tag and CHANGELOG.md agree; no wheel without a platform, which installers would take where they find
no other. Exit status 1 with what is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROCESSORS = ("x86_64", "aarch64")
PARTS = {  # of source distributions
    "tcsym": ("LICENSE", "dev", "tcsym/native/module.c", "tcsym/artifact/cuda_grids.h"),
    "tcsym_runtime": ("LICENSE", "native/module.c", "native/cuda_grids.h"),
}


def version() -> str:
    """Of the package, without importing it."""
    text = (ROOT / "tcsym" / "__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.*)"$', text, re.M)
    return str(found)


def pythons() -> tuple[str, ...]:
    """Those that pyproject.toml names."""
    found = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    return tuple(map(str, found))


def faults(
    folder: Path, tag: str | None, wanted: Sequence[str], processors: Sequence[str] = PROCESSORS
) -> Iterator[str]:
    """wanted: Pythons that have to have a wheel for each of these processors."""
    own = version()
    if tag is not None and tag != f"v{own}":
        yield f"the tag is {tag}, the package's version {own}"
    heads = re.findall(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if tag is not None and (not heads or heads[0][0] != own or heads[0][1] == "unreleased"):
        yield f"CHANGELOG.md does not begin with `## {own} (a date)`"
    files = sorted(folder.iterdir())
    for package, parts in PARTS.items():
        ours = [p for p in files if p.name.startswith(f"{package}-")]
        yield from _faults_of(package, parts, ours, [(v, p) for v in wanted for p in processors])
        files = [p for p in files if p not in ours]
    yield from (f"{p.name} is of none of {', '.join(PARTS)}" for p in files)


def _faults_of(
    package: str, parts: Sequence[str], files: Sequence[Path], wanted: Sequence[tuple[str, str]]
) -> Iterator[str]:
    own = version()
    source = f"{package}-{own}.tar.gz"
    if [p.name for p in files if p.suffix != ".whl"] != [source]:
        yield f"expected one source distribution, {source}"
    else:
        (path,) = (p for p in files if p.name == source)
        with tarfile.open(path) as archive:
            names = archive.getnames()
        for part in parts:
            if f"{package}-{own}/{part}" not in names:
                yield f"{path.name} lacks {part}"
    left = {(f"cp{v.replace('.', '')}", p) for v, p in wanted}
    for path in (p for p in files if p.suffix == ".whl"):
        yield from _wheel_faults(path, package, own)
        python, platform = path.stem.split("-")[2::2]
        left -= {(python, p) for p in PROCESSORS if platform.endswith(f"_{p}")}
    yield from (f"no wheel of {package} for {v} and {p}" for v, p in sorted(left))


def _wheel_faults(path: Path, package: str, own: str) -> Iterator[str]:
    _, told, _, _, platform = path.stem.split("-")
    if told != own:
        yield f"{path.name} is of another version than {own}"
    if not re.fullmatch(r"manylinux_2_(\d+)_(?:x86_64|aarch64)(\..*)?", platform):
        yield f"{path.name}: its platform is {platform}"
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        said = message_from_bytes(archive.read(metadata))
    if not any(n.startswith(f"{package}/runtime/_native.") and n.endswith(".so") for n in names):
        yield f"{path.name} lacks the compiled module"
    if not any(n.endswith("/licenses/LICENSE") for n in names):
        yield f"{path.name} lacks the licence"
    if said["License-Expression"] != "Apache-2.0" or not said.get_payload():
        yield f"{path.name} says no licence, or nothing of itself"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tag", help="that begins the release; without it, none is compared")
    parser.add_argument("--pythons", help="that need a wheel, as 3.13,3.14; default: all")
    parser.add_argument("--processors", help="that need one; default: all")
    arguments = parser.parse_args()
    wanted = arguments.pythons.split(",") if arguments.pythons else pythons()
    given = arguments.processors.split(",") if arguments.processors else PROCESSORS
    found = list(faults(arguments.folder, arguments.tag, wanted, given))
    print("\n".join(found) or f"tcsym {version()}: as it should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
