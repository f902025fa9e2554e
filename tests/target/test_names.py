# SPDX-License-Identifier: Apache-2.0
"""Names of targets -> what code is made for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import to_builtins

import tcsym
from tcsym.errors import OptionError
from tcsym.target.cpu import AARCH64, KINDS, SCALAR, X86_64
from tcsym.target.cuda import host_half
from tcsym.target.host import Processor, runs_here
from tcsym.target.names import DEVICES, NAMED, resolve_target
from tcsym.target.target import Target, kind_of
from tcsym.types import DType

OWN = {kind.name: frozenset(kind.features) for kind in KINDS}
ROOT = Path(tcsym.__file__).parent


def on(features: frozenset[str]) -> Target:
    return resolve_target("cpu", Processor("some", features))


@pytest.mark.parametrize("name", NAMED)
def test_a_name_means_the_same_everywhere(name: str) -> None:
    target = resolve_target(name, Processor("old", frozenset()))
    assert (target.name, target.kind) == (name, "cpu")
    assert target.cpu == (NAMED[name].cpu or SCALAR[target.triple])
    assert target.features == NAMED[name].features
    assert not target.features or not runs_here(target, Processor("old", frozenset()))


@pytest.mark.parametrize("machine, triple", [("x86_64", X86_64), ("aarch64", AARCH64)])
def test_what_is_made_for_other_processors_does_not_run(
    machine: str, triple: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever features these have; the least of all names is of the machine at hand."""
    monkeypatch.setattr("tcsym.process.system.system", lambda: ("linux", machine))
    here = Processor("some", frozenset().union(*OWN.values()))
    for kind in KINDS:
        assert runs_here(resolve_target(f"cpu:{kind.name}"), here) == (kind.triple in (triple, ""))
    assert resolve_target("cpu:novector").triple == resolve_target("cpu", here).triple == triple


@pytest.mark.parametrize(
    ("features", "vectors", "dots"),
    [
        (frozenset(), "novector", ()),
        (frozenset({"avx512f", "sse4.2"}), "novector", ()),
        (OWN["avx2"], "avx2", ("dot_int16",)),
        (OWN["avx2"] | {"avxvnni", "avx512f"}, "avx2", ("dot_int16", "dot_uint8_int8")),
        (OWN["avx512"], "avx512", ("dot_int16",)),
        (OWN["avx512"] | {"avx512vnni"}, "avx512", ("dot_int16", "dot_uint8_int8")),
        (OWN["avx512bf16"], "avx512", ("dot_int16", "dot_uint8_int8", "dot_bfloat16")),
    ],
)
def test_the_host_is_the_best_kind_that_it_can_be(
    features: frozenset[str], vectors: str, dots: tuple[str, ...]
) -> None:
    target = on(features)
    assert (target.name, target.cpu, target.machine.name) == ("cpu", "some", vectors)
    assert tuple(x.function for x in target.machine.dots) == dots
    assert features.issuperset(target.features)


@pytest.mark.parametrize(
    ("features", "dots"),
    [
        ((), ()),
        (("dotprod",), ("dot_int8",)),
        (("dotprod", "bf16"), ("dot_int8", "dot_bfloat16")),
        (("dotprod", "i8mm", "bf16", "sve"), ("dot_int8", "dot_uint8_int8", "dot_bfloat16")),
    ],
)
def test_sums_of_products_on_aarch64(
    features: tuple[str, ...], dots: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcsym.process.system.system", lambda: ("linux", "aarch64"))
    machine = resolve_target("cpu", Processor("some", frozenset(features))).machine
    assert (machine.name, tuple(x.function for x in machine.dots)) == ("neon", dots)
    assert (DType.BFLOAT16 in machine.converts) == ("bf16" in features)


def test_what_some_processors_have_is_used_by_these_only() -> None:
    assert "avx512vnni" in on(OWN["avx512"] | {"avx512vnni"}).features
    assert "avx512vnni" not in resolve_target("cpu:avx512").features


@pytest.mark.parametrize("name", [*NAMED, *DEVICES])
def test_targets_survive_json(name: str) -> None:
    target = resolve_target(name)
    assert Target.from_json(json.loads(json.dumps(to_builtins(target)))) == target


def test_lanes_and_levels() -> None:
    machine = resolve_target("cpu:avx512").machine
    assert (machine.lanes(32), machine.lanes(64), machine.block_lanes(8)) == (16, 8, 16)
    assert resolve_target("cpu:novector").machine.lanes(32) == 1
    assert [level.name for level in machine.levels] == ["l1", "l2", "l3"]
    assert machine.level("l1").line == machine.line_bytes == 64


def test_unknown_names_are_told_the_known_ones() -> None:
    for name in ("cpu:avx", "gpu", "CPU", "cuda:sm_90"):
        with pytest.raises(OptionError) as error:
            resolve_target(name)
        assert all(known in error.value.hint for known in ("cpu,", *NAMED))
    assert (kind_of("cuda:sm_90"), kind_of("cpu:avx2"), kind_of(None)) == ("cuda", "cpu", "cpu")


def test_devices_are_what_code_is_made_for_anywhere() -> None:
    target = resolve_target("cuda:sm_90a")
    assert (target.kind, target.cpu, target.machine.name) == ("cuda", "sm_90a", "sm_90a")
    assert host_half(target).triple == resolve_target("cpu:avx2").triple


def test_schedules_know_machines_not_targets() -> None:
    """What a pass asks of a processor is a fact that another kind of machine can have, too."""
    passes = (path.read_text() for path in (ROOT / "schedule").rglob("*.py"))
    assert not [found for text in passes for found in re.findall(r"import .*\bTarget\b", text)]
