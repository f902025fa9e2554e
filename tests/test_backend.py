# SPDX-License-Identifier: Apache-2.0
"""A kind of target is a line of the table: everything else goes by what the line says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.backend import BACKENDS, Cpu
from tcsym.compiler import STAGES, analyse, compile_program, explain_stage
from tcsym.ir.archive import members
from tcsym.ir.loops import Kernel
from tcsym.options import Options
from tcsym.schedule.chosen import Note
from tcsym.schedule.map_cpu import Mapped
from tcsym.target.names import NAMED, resolve_target
from tcsym.target.target import Target
from tests.targets import target_of

ONE = "def f(float(N) A) -> (C) { C(i) = A(i) + 1 }"
PROGRAM = analyse(ONE)["f"]


class Plain(Cpu):
    """A back end that maps nothing, and tells a stage of its own."""

    stages = ("loops again",)

    def map(self, kernel: Kernel, target: Target, options: Options, whole: bool) -> Mapped:
        return Mapped(kernel, (Note("i", f"plain for {target.name}"),))

    def explain(self, stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
        return f"{stage} of {kernel.name}"


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setitem(BACKENDS, "plain", Plain())
    return replace(target_of("novector"), name="plain:1")


def test_every_target_has_a_back_end() -> None:
    assert {resolve_target(name).kind for name in ("cpu", *NAMED)} <= set(BACKENDS)


def test_stages_behind_naive_loops_are_the_back_ends(plain: Target) -> None:
    mapped = explain_stage(PROGRAM, "mapped", plain, Options(), {})
    loops = explain_stage(PROGRAM, "loops", plain, Options(), {})
    assert mapped.splitlines()[0].startswith("# i: plain for plain:1")
    assert mapped.endswith(loops)
    assert explain_stage(PROGRAM, "loops again", plain, Options(), {}) == "loops again of f"
    with pytest.raises(tc.OptionError) as error:
        explain_stage(PROGRAM, "llvm", plain, Options(), {})
    assert "loops again" in error.value.hint and "asm" not in error.value.hint


def test_code_is_the_back_ends(plain: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = ("dense", "dense")
    code = compile_program(PROGRAM, plain, Options(), {}, layouts)  # type: ignore[arg-type]
    assert len(list(members(code.object_code))) == 1
    monkeypatch.setattr(Plain, "begin", None)
    with pytest.raises(TypeError):
        compile_program(PROGRAM, plain, Options(), {}, layouts)  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", [*STAGES, *Cpu.stages])
def test_every_stage_has_a_text(stage: str) -> None:
    text = explain_stage(PROGRAM, stage, target_of("avx2"), Options(), {}, sizes={"N": 37})
    assert text.strip()
