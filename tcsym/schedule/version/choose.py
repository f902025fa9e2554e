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
from tcsym.ir.loops import Branch, Kernel
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.plan import P, Version, renamed
from tcsym.schedule.version.versioning import duplicate

NONE = "-"  # what no plan is called
Proposal = Callable[[Kernel, str, Setting], Iterable[Version[P]]]
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


class _Rest(Struct, Generic[P]):
    """What versions have left of a nest.

    wanted: the plan that options ask for (`Options.plan`), until it comes. offered: by the names
    that plans have there; all there are, if it is_listed.
    """

    kernel: Kernel
    nest: str
    setting: Setting
    apply: Apply[P]
    taken: list[Taken | Note] = field(default_factory=list)
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
            if any(self.take(x) for x in propose(self.kernel, self.nest, self.setting)):
                return True
        return False

    def take(self, x: Version[P]) -> bool:
        """True if nothing is left."""
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
            self.taken.append(Taken(when, x.plan, is_left_out=True))
            return False
        inside, nest, loops = self.setting.recording(), self.nest, dict[str, str]()
        if when != TRUE:
            here = find_loop(self.kernel.body, nest)
            self.kernel, copy, loops = duplicate(self.kernel, here, self.setting.names)
            branch = Branch(when, copy, here)
            body = replace_loop(self.kernel.body, nest, lambda _: branch)
            self.kernel, nest = replace(self.kernel, body=body), loops[nest]
        plan = renamed(x.plan, loops)
        self.kernel = self.apply(plan, self.kernel, nest, inside)
        self.taken.append(Taken(when, plan, tuple(inside.record)))
        return when == TRUE

    def _is_of_sizes(self, when: Condition) -> bool:
        """Known before the kernel begins; in a strip it may move with the strip."""
        around = {x.variable for x in loops_around(self.kernel.body, self.nest)}
        return around.isdisjoint(condition_variables(when))
