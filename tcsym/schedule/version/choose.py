# SPDX-License-Identifier: Apache-2.0
"""Nest, proposals -> the kernel with its versions: which plan the nest gets, at which sizes.

The only place where policy duplicates a nest, and where sizes are left out. Proposals say what they
would do, and when; `apply` does it to the copy that is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import FALSE, TRUE, Condition, any_of, condition_variables
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import loops_around
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.plan import P, Plan, Refusal, Version, always, renamed
from tcsym.schedule.version.versioning import Loops, beside

NONE = "-"  # what no plan is called
Proposal = Callable[[Kernel, str, Setting], Iterable[Version[P] | Refusal]]
Apply = Callable[[P, Kernel, str, Setting], Kernel]


def choose(
    kernel: Kernel, nest: str, setting: Setting, proposals: Iterable[Proposal[P]], apply: Apply[P]
) -> Kernel:
    """The nest by the proposals' versions, in their order; the first that always holds is the last.

    A version that no size of the context needs is passed over. A proposal sees what versions before
    its own have left of the nest. Contract: one of them always holds.
    """
    rest = _Rest(kernel, nest, setting, apply)
    is_done = rest.take_all(proposals)
    assert is_done
    return rest.kernel


def schedule_by(
    plan: P, kernel: Kernel, nest: str, setting: Setting, apply: Apply[P], note: str = ""
) -> Kernel:
    """The nest by this plan, whatever the sizes."""
    return choose(kernel, nest, setting, [lambda *_: [always(plan, note)]], apply)


def record(
    plan: Plan, nest: str, setting: Setting, run: Callable[[Setting], Kernel], note: str = ""
) -> Kernel:
    """What `run` makes, which is all of the nest; as the plan's in the record of the setting."""
    inside = setting.recording()
    if note:
        inside.note(nest, note)
    kernel = run(inside)
    setting.record.append(Choice(nest, (Taken(TRUE, plan, tuple(inside.record)),)))
    return kernel


class _Rest(Struct, Generic[P]):
    """What versions have left of a nest. `loops`: its loops, by those that a proposal saw.

    wanted: the plan that options ask for (`Options.plan`), until it comes. offered: by the names
    that plans have there; all there are, if it is_listed.
    """

    kernel: Kernel
    nest: str
    setting: Setting
    apply: Apply[P]
    taken: list[Taken | Note] = field(default_factory=list)
    loops: Loops = field(default_factory=dict)
    wanted: str = ""
    offered: list[tuple[str, Version[P]]] = field(default_factory=list)
    is_listed: bool = False

    def take_all(self, proposals: Iterable[Proposal[P]]) -> bool:
        """Versions until nothing is left; False if something is. What was taken is recorded."""
        nest, given = self.nest, tuple(proposals)
        self.wanted = self.setting.options.plan_name or (NONE if self.setting.tells_all else "")
        is_done = self._take_all(given)
        if self.wanted:  # not one of these: maybe of a nest inside
            self.wanted, self.is_listed = "", True
            is_done = self._take_all(given)
        if self.taken:
            self.setting.record.append(Choice(nest, tuple(self.taken), tuple(self.offered)))
        return is_done

    def _take_all(self, proposals: tuple[Proposal[P], ...]) -> bool:
        for propose in proposals:
            self.loops = {}
            if any(self.take(x) for x in propose(self.kernel, self.nest, self.setting)):
                return True
        return False

    def take(self, x: Version[P] | Refusal) -> bool:
        """True if nothing is left."""
        if isinstance(x, Refusal):
            if not self.wanted:
                self.taken.append(Note(self.nest, x.reason))
            return False
        needs = in_context(self.kernel, x.when if x.needs is None else x.needs)
        if needs == FALSE:
            return False
        name = self._listed(x)
        if self.wanted and self.wanted != name:
            return False
        if self.wanted:
            options = replace(self.setting.options, plan="")
            self.wanted, self.setting = "", replace(self.setting, options=options)
            return self._taken(replace(x, when=needs, is_seldom=False))
        return self._taken(x)

    def _listed(self, x: Version[P]) -> str:
        """Its name, as the first or the k-th of its kind."""
        kind = type(x.plan).__name__
        n = sum(isinstance(y.plan, type(x.plan)) for _, y in self.offered)
        name = f"{kind}:{n + 1}" if n else kind
        if not self.is_listed:
            self.offered.append((name, x))
        return name

    def _taken(self, x: Version[P]) -> bool:
        when = in_context(self.kernel, x.when)
        if when == FALSE:
            return False
        if x.is_seldom and not self.setting.whole and when != TRUE and self._is_of_sizes(when):
            self.kernel = replace(self.kernel, left_out=any_of((self.kernel.left_out, when)))
            self.taken.append(Taken(when, renamed(x.plan, self.loops), is_left_out=True))
            return False
        is_alone = when == TRUE
        inside = self.setting.recording()
        if x.note:
            inside.note(self.nest, x.note)
        nest, loops = self.nest, self.loops
        if not is_alone:
            both = beside(self.kernel, nest, when, x.side, self.setting.names)
            self.kernel, self.nest = both.kernel, both.rest[nest]
            self.loops = _after(loops, both.rest)
            nest, loops = both.version[nest], _after(loops, both.version)
        plan = renamed(x.plan, loops)
        self.kernel = self.apply(plan, self.kernel, nest, inside)
        self.taken.append(Taken(when, plan, tuple(inside.record)))
        return is_alone

    def _is_of_sizes(self, when: Condition) -> bool:
        """Known before the kernel begins; in a strip it may move with the strip."""
        around = {x.variable for x in loops_around(self.kernel.body, self.nest)}
        return around.isdisjoint(condition_variables(when))


def _after(first: Loops, then: Loops) -> Loops:
    """Both renamings, one after the other."""
    return {**then, **{old: then.get(new, new) for old, new in first.items()}}
