# SPDX-License-Identifier: Apache-2.0
"""What a CUDA device has to show: each group rehearsed without one, and how groups are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.metadata import requires
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.backend import BACKENDS
from tcsym.codegen import emit, object_code
from tcsym.codegen.device.ptxas import assembled, assembler
from tcsym.compiler import Lowering, analyse
from tcsym.options import Options
from tcsym.target.names import resolve_target
from tests.codegen.device.test_ptx import needs_ptxas
from tests.emulated_driver import Driver, cuda, emulated
from tests.tools.rehearsal import CAPABILITY, DEVICE, Numpy, Recorded, Recording, code
from tools.gpu import costs, launches, pack, products, rows, run, speeds, updates
from tools.gpu.case import Case, equal, run_cases
from tools.gpu.groups import GROUPS, Group
from tools.gpu.library import Torch
from tools.gpu.lines import put, table, taken

__all__ = ["cuda", "emulated"]
ROOT = Path(__file__).resolve().parents[2]
QUICK = ("about", "maps", "updates")
LONG = [n for n in GROUPS if n not in QUICK]
MOST_SPILLED = 64  # bytes of a thread, of a plan that nobody gets unasked
MOST_CASES = 4  # of groups that have many alike


@pytest.fixture
def recorded(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[bytes]]:
    """PTX of what is loaded."""
    cuda.capability = CAPABILITY
    monkeypatch.setitem(BACKENDS, "cuda", Recording())
    monkeypatch.setattr(Recorded, "texts", set())
    forget()
    yield Recorded.texts
    forget()


def forget() -> None:
    """Kernels and plans of another target."""
    for known in (products.kernel, products.space, rows.kernel, rows.plans, rows.defined):
        known.cache_clear()
    for known in (launches.kernel, updates.kernel):
        known.cache_clear()


def rehearsed(name: str, texts: set[bytes], out: Path) -> None:
    """All of a group's results are right, and NVIDIA's assembler takes all of its code."""
    cases = GROUPS[name].cases(Numpy(), pack.programs_here())
    many = name.startswith("programs")
    status = run_cases(name, islice(cases, MOST_CASES) if many else cases, Numpy(), out)
    if assembler() is not None:
        status |= run_cases(name, [code(texts)], Numpy(), out)
    found = taken(out, name)
    assert status == 0, [x for x in found if not x["ok"]]
    assert texts or name == "about" or name.startswith("programs")  # which may not be here


@pytest.mark.parametrize("name", QUICK)
def test_groups_are_rehearsed(name: str, recorded: set[bytes], tmp_path: Path) -> None:
    rehearsed(name, recorded, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_long_groups_are_rehearsed(name: str, recorded: set[bytes], tmp_path: Path) -> None:
    rehearsed(name, recorded, tmp_path)


@pytest.mark.parametrize("layout", products.TEXTS)
@pytest.mark.parametrize("kind", products.KINDS)
def test_sizes_take_every_version(kind: str, layout: str) -> None:
    nest = products.nest(kind, layout, f"cuda:{DEVICE}")
    sizes = [(s, 0) for s in products.FEW] + [(s, 1) for s in products.PHASED]
    found = {products.version(nest, s, phase) for s, phase in sizes}
    assert [products.plan_name(nest, k) for k in {*range(len(nest.taken))} - found] == []


PLANS = [(kind, layout) for kind in products.KINDS for layout in products.TEXTS]


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "layout"), PLANS)
def test_every_plan_of_products_assembles(kind: str, layout: str) -> None:
    target = resolve_target(f"cuda:{DEVICE}")
    (program,) = analyse(products.text(kind, layout)).values()
    for plan in products.nest(kind, layout, f"cuda:{DEVICE}").plans:
        options = Options(plan=plan, tf32=products.KINDS[kind].tf32)
        stages = Lowering(program, target, options, {}, ("dense",) * 3, (), {})
        kernel = stages.mapped(stages.scheduled()).kernel
        ptx = object_code(emit(kernel, target, 1).device_text, target).decode()
        used = assembled(ptx, DEVICE).used.values()
        assert max(x.spills for x in used) <= MOST_SPILLED, plan


# ---- how groups are run


WORKER = """
import os, sys, time
from pathlib import Path
from tools.gpu.case import Case, Wrong, run_cases
from tools.gpu.groups import GROUPS

class Broken:
    broken = False
    def synchronize(self):
        if self.broken:
            raise RuntimeError("an illegal memory access was encountered")

library, (name, out, programs, first) = Broken(), sys.argv[1:]

def act(what):
    def run():
        if what == "wrong":
            raise Wrong("3 of 4", {{"wrong": 3}})
        if what == "break":
            library.broken = True
            raise RuntimeError("an illegal memory access was encountered")
        if what == "die":
            os.abort()
        if what == "hang":
            time.sleep(60)
        return {{"figure": 1.5}}
    return run

print("begun", name, first, os.environ.get("TCSYM_SYNC"))
cases = [Case(f"{{k}} {{what}}", act(what)) for k, what in enumerate({plan}[name])]
sys.exit(run_cases(name, cases, library, Path(out), int(first)))
"""


@pytest.fixture
def worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs groups of such cases: whether all hold, and the lines."""
    out = tmp_path / "out"
    out.mkdir()

    def work(plan: dict[str, list[str]], seconds: float = 60.0, **groups: Group) -> Any:
        for name in plan:
            monkeypatch.setitem(GROUPS, name, groups.get(name, Group(lambda *_: ())))
        (tmp_path / "worker.py").write_text(WORKER.format(plan=plan))
        command = [sys.executable, str(tmp_path / "worker.py")]
        environment = run.environment_with(ROOT)
        held = run.run(list(plan), command, (out, tmp_path), seconds, environment)
        return held, taken(out), (out / run.LOG).read_text()

    return work


def test_a_broken_context_costs_a_case(worked: Any, capfd: pytest.CaptureFixture[str]) -> None:
    plan = {"a": ["good", "break", "good", "die", "good", "wrong"], "b": ["good", "good"]}
    held, lines, log = worked(plan, b=Group(lambda *_: (), syncs=True))
    assert not held
    of_a = [(x["case"], x["ok"]) for x in lines if x["group"] == "a"]
    assert of_a == [
        *(("0 good", True), ("1 break", False), ("2 good", True)),
        *(("the process", False), ("4 good", True), ("5 wrong", False)),
    ]
    assert next(x for x in lines if x["case"] == "5 wrong")["wrong"] == 3
    assert "begun a 2 None" in log and "begun b 0 1" in log and "illegal memory access" in log
    told = capfd.readouterr().out
    assert "a: 3 of 6 hold" in told and "b: 2 of 2 hold" in told and "5 of 8 cases hold" in told
    assert "5 wrong: wrong 3 FAILED Wrong: 3 of 4" in told


def test_groups_end_in_time_and_what_is_timed_runs_alone(
    worked: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = {"long": ["good", "hang"], "timed": ["good"], "after": ["good"]}
    of_long = Group(lambda *_: (), seconds=3)
    begun = time.monotonic()
    held, lines, log = worked(plan, long=of_long, timed=Group(lambda *_: (), is_timed=True))
    assert not held and time.monotonic() - begun < 40
    found = {(x["group"], x["case"]): x for x in lines}
    assert found["long", "0 good"]["ok"] and "ended after" in found["long", "the process"]["why"]
    order = [line.split()[1] for line in log.splitlines() if line.startswith("begun")]
    assert order == ["long", "timed", "after"]
    assert "0 good: figure 1.5" in capfd.readouterr().out


def test_what_there_is_no_time_for_is_told(worked: Any, capfd: pytest.CaptureFixture[str]) -> None:
    held, lines, _ = worked(
        {"first": ["hang"], "second": ["good"]}, 3.0, second=Group(lambda *_: (), is_timed=True)
    )
    assert not held and [x["group"] for x in lines] == ["first"]
    assert "left out, as time was over: second" in capfd.readouterr().out


def test_lines_that_were_cut_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, {"group": "a", "case": "1", "ok": True, "s": 0.5})
    with (tmp_path / "lines.jsonl").open("a") as file:
        file.write('{"group": "a", "ca')
    assert [x["case"] for x in taken(tmp_path)] == ["1"]
    assert table("a", taken(tmp_path), False) == "a: 1 of 1 hold, 0.5 s"


def test_a_wrong_result_is_told(cuda: Driver, tmp_path: Path) -> None:
    library = Numpy()

    def wrong() -> dict[str, Any]:
        got = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)
        return equal(library, library.of(got), np.array([[1.0, 2.0], [3.0, 4.0]]))

    assert run_cases("g", [Case("c", wrong)], library, tmp_path) == 1
    (line,) = taken(tmp_path)
    assert not line["ok"] and line["wrong"] == 1 and line["why"] == "Wrong: 1 of 4"


# ---- packing


def test_an_old_llvmlite_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"llvmlite": "0.44.0", "numpy": "2.5.2"}
    monkeypatch.setattr(pack, "found_version", lambda name: versions.get(name, "1"))
    with pytest.raises(SystemExit, match=r"llvmlite 0\.44\.0 here is older than 0\.45") as error:
        pack.unpack(tmp_path, tmp_path / "site")
    assert "--with llvmlite" in str(error.value) and not (tmp_path / "site").exists()
    (tmp_path / "llvmlite-0.45.0-cp312.whl").touch()  # comes along
    asked = list[tuple[str, ...]]()
    monkeypatch.setattr(pack, "pip", lambda *given: asked.append(given))
    pack.unpack(tmp_path, tmp_path / "site")
    assert len(asked) == 1 and asked[0][-1].endswith("llvmlite-0.45.0-cp312.whl")


def test_a_package_that_is_not_packed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"llvmlite": "0.50.0", "numpy": "2.5.2", "islpy": ""}
    monkeypatch.setattr(pack, "found_version", lambda name: versions.get(name, "1"))
    with pytest.raises(SystemExit, match=f"lacks islpy, which is not in {tmp_path}"):
        pack.unpack(tmp_path, tmp_path / "site")


def test_what_is_packed_has_all_that_is_needed() -> None:
    """Our dependencies are packed, or have to be there; what packages need of others is, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = {*pack.PACKED, *pack.NEEDED}

    def names(wanted: list[str]) -> set[str]:
        plain = (x for x in wanted if "extra ==" not in x and "sys_platform" not in x)
        return {x.split(";")[0].strip().split(" ")[0].split(">")[0].split("<")[0] for x in plain}

    assert names(project["dependencies"]) <= given
    for name, least in pack.NEEDED.items():
        assert f"{name}>={'.'.join(map(str, least))}" in project["dependencies"]
    for name in pack.PACKED:
        needed = {x for x in names(requires(name) or []) if "python_version" not in x}
        assert {x.split("!")[0].split("=")[0].split("~")[0] for x in needed} <= given, name


def test_pack_and_tree_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*given: str) -> None:
        (tmp_path / "pack" / "a.whl").write_bytes(bytes(1000))

    monkeypatch.setattr(pack, "pip", download)
    monkeypatch.setattr(pack, "programs_here", lambda: tmp_path / "none")
    pack.pack(tmp_path / "pack", "3.12", frozenset())
    assert pack.bytes_in(tmp_path / "pack") == 1000
    assert 2 << 20 < pack.tree_bytes() < 32 << 20
    monkeypatch.setattr(pack, "MOST_BYTES", 1 << 20)
    with pytest.raises(SystemExit, match="more than 1 MiB"):
        pack.pack(tmp_path / "pack", "3.12", frozenset())


def test_it_is_rehearsed_as_a_whole(tmp_path: Path) -> None:
    """As a device's machine runs it, from a folder that was packed: results and a log in OUT."""
    source, out = tmp_path / "pack", tmp_path / "out"
    source.mkdir()
    command = [sys.executable, "-m", "tools.gpu", "--rehearse", "--from", str(source), str(out)]
    done = subprocess.run(
        [*command, "--groups", "about,maps"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {x.name for x in out.iterdir()} == {"lines.jsonl", "log.txt"}
    lines = [json.loads(x) for x in (out / "lines.jsonl").read_text().splitlines()]
    assert {x["group"] for x in lines} == {"about", "maps"}
    assert f"{len(lines)} of {len(lines)} cases hold" in done.stdout


# ---- torch, on the processor


@pytest.mark.host
def test_references_by_torch_are_those_by_numpy(torch: Any) -> None:
    library = Torch("cpu")
    x = library.random(5, 40)
    for name, expected in rows.EXPECTED.items():
        found = expected(library.xp, library.wide(x)).numpy()
        np.testing.assert_allclose(found, expected(np, x.numpy().astype(np.float64)), err_msg=name)
    for dtype in ("float32", "float16", "bfloat16"):
        a, b = library.whole(6, 8, dtype=dtype), library.whole(8, 5, dtype=dtype)
        want = library.rounded(products.product(library, "nn", a, b), dtype)
        assert equal(library, (a.float() @ b.float()).to(a.dtype), want) == {"wrong": 0}
        assert library.shifted(a).data_ptr() % 16 == a.element_size()
        assert (library.host(library.of(library.host(a))) == library.host(a)).all()
        assert products.norm(library, a, library.wide(a), 1e-9)["norm"] == 0
    assert {"product", "softmax", "conv2d", "attention"} <= library.rivals().keys()


class OnProcessor(Torch):
    """torch's tensors there, for all but streams, graphs and clocks of a device."""

    is_small = True

    def __init__(self) -> None:
        super().__init__("cpu")

    def stream(self) -> Any:
        return nullcontext()

    def captured(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        made = call()
        return made, lambda: made.copy_(call()) if isinstance(made, self.torch.Tensor) else None

    def synchronize(self) -> None:
        pass

    def milliseconds(self, call: Callable[[], Any], calls: int) -> float:
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        return 1e3 * (time.perf_counter() - begun) / calls


@pytest.mark.host
@pytest.mark.parametrize("name", [n for n in GROUPS if n != "about" and not n.startswith("plans")])
def test_groups_run_with_torch(
    name: str, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are the processor's: what groups ask of torch is right."""
    define = tcsym.define
    monkeypatch.setattr(tcsym, "define", lambda text, **_: define(text, target="cpu"))
    for module in (products, rows, speeds, costs):
        monkeypatch.setattr(module, "resolve_target", lambda _: resolve_target(f"cuda:{DEVICE}"))
    forget()
    library = OnProcessor()
    cases = list(GROUPS[name].cases(library, pack.programs_here()))
    later = [c for c in cases if c.name != "a position outside"]  # which processors raise at once
    status = run_cases(name, later[: MOST_CASES if "programs" in name else None], library, tmp_path)
    forget()
    assert status == 0, [x for x in taken(tmp_path, name) if not x["ok"]]
