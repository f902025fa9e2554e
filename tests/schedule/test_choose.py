# SPDX-License-Identifier: Apache-2.0
"""Which versions a nest gets: order, context, sizes left out, and whose the names are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tcsym.index.expr import FALSE, TRUE, Condition, any_of, ge, negate, var
from tcsym.ir.loops import Branch, Kernel, Loop, Node
from tcsym.options import Options
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Note, Taken, notes_of
from tcsym.schedule.order_plans import RowsInOrder
from tcsym.schedule.plan import Version, always, renamed
from tcsym.schedule.version.choose import Proposal, choose
from tcsym.sizes.context import Known
from tests.schedule import naive
from tests.schedule.targets import AVX2

FEW, SOME, MANY = (ge(var("M"), n) for n in (4, 16, 64))
KERNEL = naive.matmul()  # i { j { k } }


def setting(whole: bool = False) -> Setting:
    return Setting(AVX2, Options(), Names.of(KERNEL), [], whole=whole)


class Marked(RowsInOrder, frozen=True):
    """Of a loop, with a number to know it by."""

    columns: str
    number: int


def proposal(*versions: Version[Marked]) -> Proposal[Marked]:
    return lambda kernel, nest, setting: versions


def last(n: int) -> Proposal[Marked]:
    """What always holds, for what is left by then."""

    def propose(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Marked]]:
        _, columns, _ = loops_in(find_loop(kernel.body, nest))
        yield always(Marked(columns.variable, n))

    return propose


def marked(when: Condition, n: int, **how: Any) -> Version[Marked]:
    return Version(when, Marked("j", n), **how)


def mark(plan: Marked, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The plan's number is where it was applied: in the loop over its columns, inside the nest."""
    assert plan.columns in {x.variable for x in loops_in(find_loop(kernel.body, nest))}
    body = replace_loop(kernel.body, plan.columns, lambda x: replace(x, unroll=plan.number))
    return replace(kernel, body=body)


def cascade(node: Node) -> list[tuple[Condition, str, int]]:
    """Conditions in the order of tests, with the nest that runs and the number of its plan."""
    if isinstance(node, Branch):
        assert node.orelse is not None
        ((_, nest, n),) = cascade(node.then)
        return [(node.condition, nest, n), *cascade(node.orelse)]
    assert isinstance(node, Loop)
    inner = next(x for x in loops_in(node.body) if x.order == "parallel")
    return [(TRUE, node.variable, inner.unroll)]


def test_versions_are_tested_in_the_order_of_proposals() -> None:
    given = [proposal(marked(MANY, 2), marked(SOME, 3)), last(4)]
    made = choose(KERNEL, "i", setting(), given, mark)
    tests = cascade(made.body)
    assert [x[0] for x in tests] == [MANY, SOME, TRUE]
    assert [x[2] for x in tests] == [2, 3, 4]
    assert [x[1] for x in tests] == ["i.1", "i.2", "i"]  # what is left keeps its name


def test_plans_of_versions_are_of_their_loops() -> None:
    """`mark` finds the columns in the nest that is its own."""
    versions = [marked(ge(var("M"), n), n) for n in (64, 32, 16)]
    given = [proposal(*versions, always(Marked("j", 2)))]
    own = setting()
    choose(KERNEL, "i", own, given, mark)
    (choice,) = own.record
    assert isinstance(choice, Choice) and choice.nest == "i"
    columns = [
        x.plan.columns
        for x in choice.versions
        if isinstance(x, Taken) and isinstance(x.plan, Marked)
    ]
    assert columns == ["j.1", "j.2", "j.3", "j"]


def test_a_proposal_sees_what_is_left() -> None:
    seen: list[str] = []

    def look(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Marked]]:
        seen.append(nest)
        yield marked(MANY, len(seen))

    def columns(plan: Marked, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
        return kernel

    choose(KERNEL, "i", setting(), [look, look, last(3)], columns)
    assert seen == ["i", "i"]


def test_the_first_that_always_holds_is_the_last_that_is_asked() -> None:
    def never(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Marked]]:
        raise AssertionError("asked")
        yield

    own = setting()
    made = choose(KERNEL, "i", own, [last(3), never], mark)
    assert cascade(made.body) == [(TRUE, "i", 3)]
    assert own.record == [Choice("i", (Taken(TRUE, Marked("j", 3)),))]


def test_what_no_size_of_the_context_needs_is_passed_over() -> None:
    few = replace(KERNEL, context=(Known("M", 1, 32),))
    given = [proposal(marked(MANY, 2), marked(SOME, 3)), last(4)]
    assert [x[2] for x in cascade(choose(few, "i", setting(), given, mark).body)] == [3, 4]


def test_what_all_sizes_of_the_context_need_is_alone() -> None:
    many = replace(KERNEL, context=(Known("M", 64, None),))
    given = [proposal(marked(MANY, 2), marked(SOME, 3)), last(4)]
    assert cascade(choose(many, "i", setting(), given, mark).body) == [(TRUE, "i", 2)]


def test_seldom_sizes_are_left_out_unless_the_kernel_is_whole() -> None:
    given = [proposal(marked(MANY, 2, is_seldom=True), always(Marked("j", 3)))]
    own = setting()
    made = choose(replace(KERNEL, left_out=negate(FEW)), "i", own, given, mark)
    assert made.left_out == any_of((negate(FEW), MANY))
    assert cascade(made.body) == [(TRUE, "i", 3)]
    (choice,) = own.record
    assert isinstance(choice, Choice)
    assert choice.versions[0] == Taken(MANY, Marked("j", 2), is_left_out=True)
    whole = choose(KERNEL, "i", setting(whole=True), given, mark)
    assert whole.left_out == FALSE and len(cascade(whole.body)) == 2


def test_sizes_are_not_left_out_if_the_context_has_no_others() -> None:
    many = replace(KERNEL, context=(Known("M", 64, None),))
    given = [proposal(marked(MANY, 2, is_seldom=True), always(Marked("j", 3)))]
    made = choose(many, "i", setting(), given, mark)
    assert made.left_out == FALSE and cascade(made.body) == [(TRUE, "i", 2)]


def test_notes_are_kept_in_order() -> None:
    def noted(plan: Marked, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
        setting.note(nest, f"rows along {plan.columns}")
        return kernel

    own = setting()
    choose(KERNEL, "i", own, [proposal(marked(MANY, 2), always(Marked("j", 3)))], noted)
    assert list(notes_of(own.record)) == [
        Note("i.1", "rows along j.1"),
        Note("i", "rows along j"),
    ]


def test_choices_inside_a_plan_are_inside_its_version() -> None:
    def outer(plan: Marked, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
        return choose(kernel, "j", setting, [proposal(always(Marked("j", 7)))], mark)

    own = setting()
    choose(KERNEL, "i", own, [proposal(always(Marked("j", 2)))], outer)
    inner = Choice("j", (Taken(TRUE, Marked("j", 7)),))
    assert own.record == [Choice("i", (Taken(TRUE, Marked("j", 2), (inner,)),))]


def test_renamed_plans() -> None:
    assert renamed(Marked("j", 2), {"j": "j.1", "i": "i.1"}) == Marked("j.1", 2)
