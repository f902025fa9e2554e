# SPDX-License-Identifier: Apache-2.0
"""What is shipped in autotune_cache/: well-formed, of the library's kernels, and right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tune_library import KEPT_FIELDS, Kernel, Proof, main
from tcsym import library
from tcsym.frontend.sample import deviation, random_inputs
from tcsym.index.expr import TRUE
from tcsym.target.names import resolve_target
from tcsym.tuning.evaluate import Job, evaluate_job
from tcsym.tuning.request import DEFAULT
from tcsym.tuning.shipped import DIRECTORY, file_name, paths, read, tuned_text
from tcsym.tuning.stores import lookup
from tcsym.tuning.tree import Leaf, tree_from_json

FILES = [Path(p) for p in paths()]


def test_some_kernels_have_options() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_file_belongs_to_a_kernel_and_reads_as_it_was_written(path: Path) -> None:
    rows = read(str(path))
    assert tuned_text(rows) == path.read_text()
    kernel = library.load(rows[0].name)
    assert path == Path(DIRECTORY) / file_name(kernel.name, kernel.program.canonical)
    for row in rows:
        tree = tree_from_json(json.loads(row.tree), len(kernel.program.sizes))
        assert isinstance(tree, Leaf) and tree.options != DEFAULT
        assert not KEPT_FIELDS & tree.options.changed().keys()
        assert row.gain > 1.01


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
def test_shipped_options_compute_what_the_interpreter_does(path: Path, target: str) -> None:
    program = library.load(path.stem.rpartition("-")[0]).program
    for row in read(str(path)):
        tree = tree_from_json(json.loads(row.tree), len(program.sizes))
        assert isinstance(tree, Leaf)
        small = tuple((k + 3,) * len(program.sizes) for k in (0, 14))
        job = Job(program, resolve_target(target), tree.options, DEFAULT, small, 2, seconds=0.001)
        assert evaluate_job(job).state in ("measured", "raced")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_they_are_found_for_such_machines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE_DIR", "/nowhere")
    program = library.load(path.stem.rpartition("-")[0]).program
    vectors = {row.machine.split()[1] for row in read(str(path))}
    for name in vectors:
        target = resolve_target(f"cpu:{name}")
        monkeypatch.setenv("TCSYM_OPTIONS", "1")
        (region,) = lookup(program.canonical, target, program.sizes)
        assert (region.origin, region.context) == ("shipped", TRUE)
        monkeypatch.setenv("TCSYM_OPTIONS", "0")
        (region,) = lookup(program.canonical, target, program.sizes)
        assert region.origin == "analytic"


def test_what_is_shipped_must_win_beyond_doubt() -> None:
    sizes = [(n,) for n in range(8)]

    def proof(one: float, all_cores: float, odd: float | None = None) -> Proof:
        logs = {1: dict.fromkeys(sizes, one), 2: dict.fromkeys(sizes, all_cores)}
        logs[1][sizes[0]] = one if odd is None else odd
        return Proof(logs)

    assert proof(-0.1, -0.1).is_good and proof(-0.1, 0.0).is_good
    assert not proof(-0.005, -0.1).is_good  # not by enough
    assert not proof(-0.1, 0.05).is_good  # slower on more threads
    assert not proof(-0.1, -0.1, 0.2).is_good  # much slower somewhere
    assert not proof(-0.04, -0.1, 0.09).is_good  # not beyond doubt
    assert "1 threads 1.105" in str(proof(-0.1, 0.0))


def test_files_of_other_machines_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import tune_library

    monkeypatch.setattr(tune_library, "DIRECTORY", str(tmp_path))
    kernel = Kernel.named("row_sum")
    row = read(str(FILES[0]))[0]
    from msgspec.structs import replace

    mine = replace(row, program=kernel.program.canonical, machine=kernel.machine)
    for each in (replace(mine, machine="other avx2 l1=1K l2=2K"), mine, replace(mine, gain=1.5)):
        kernel.keep(each)
    assert sorted(r.gain for r in kernel.rows()) == sorted([row.gain, 1.5])
    kernel.keep(None)
    assert [r.machine for r in kernel.rows()] == ["other avx2 l1=1K l2=2K"]


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sotfmax"])
    assert "no kernel `sotfmax`" in capsys.readouterr().err


def test_a_recurrence_may_lose_what_disturbed_inputs_lose() -> None:
    kernel = library.load("elman_rnn")
    sizes = {"T": 40, "B": 3, "I": 2, "H": 40}
    inputs = random_inputs([(t.dtype, t.shape) for t in kernel.program.inputs], sizes, 0)
    expected = kernel.reference(*inputs)
    near = (expected * np.float32(1 + 1e-4)).astype(np.float32)
    assert not deviation("S", near, expected, sizes).is_good
    assert deviation("S", near, expected, sizes, moved=1e-3).is_good
