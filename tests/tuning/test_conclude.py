# SPDX-License-Identifier: Apache-2.0
"""What of a learned tree is kept: regions with evidence, and sizes that won by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcsym.options import Options
from tcsym.tuning.confirm import LATE
from tcsym.tuning.evidence import Verdict
from tcsym.tuning.learn import prove_partition
from tcsym.tuning.regret import PRECISION
from tcsym.tuning.select_regions import (
    LEAST_EVIDENCE,
    MOST_EVIDENCE,
    Conclusion,
    conclude,
    if_all_wins,
)
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Predicate, Split, Tree, contexts, leaf_of

NAMES = ("M", "N")
FAST, WIDE = Options(chains=2), Options(parallel_loops=2)
Values = tuple[int, ...]


class Judge:
    """Logarithms of time by options and sizes; -0.2 where nothing is told. most: how many it has
    time for."""

    def __init__(
        self, logs: Mapping[Values, float] | None = None, most: int = 1000, noise: float = 0.01
    ) -> None:
        self.logs, self.most, self.noise = logs or {}, most, noise
        self.asked: list[tuple[Options, Values]] = []

    def verdict(self, options: Options, values: Values) -> Verdict | str:
        if len(self.asked) == self.most:
            return LATE
        self.asked.append((options, values))
        log = self.logs.get(values, -0.2)
        return Verdict(log, log - PRECISION, log + PRECISION, self.noise, 1e-6)


def concluded(
    tree: Tree, judge: Judge, tuned: Sequence[Values], others: Sequence[Values] = ()
) -> Conclusion:
    default = {v: Ratio(0.0, 0.0, 2e-6) for v in tuned}
    weights, extra = dict.fromkeys(tuned, 1 / len(tuned)), dict.fromkeys(others, 0.1)
    found = conclude(tree, judge, default, {}, weights, extra)
    prove_partition(found.tree, NAMES)
    return found


def test_one_measured_size_governs_only_itself() -> None:
    found = concluded(Leaf(FAST), Judge(), [(8, 8)])
    assert leaf_of(found.tree, (8, 8)).options == FAST
    for near in ((7, 8), (9, 8), (16, 8), (8, 4)):
        assert leaf_of(found.tree, near).options == Options()
    assert found.confirmed[8, 8].log == -0.2 and found.notes == ()


def test_a_region_needs_evidence_and_ends_where_it_does() -> None:
    others = [(4, 4), (4, 64), (64, 4), (64, 64), (16, 16)]
    judge = Judge()
    found = concluded(Leaf(FAST), judge, [(8, 8)], others)
    assert LEAST_EVIDENCE <= len(judge.asked) <= MOST_EVIDENCE
    for inside in ((8, 8), (4, 64), (50, 5)):
        assert leaf_of(found.tree, inside).options == FAST
    for outside in ((3, 8), (65, 8), (8, 65), (1000, 1000)):
        assert leaf_of(found.tree, outside).options == Options()


def test_too_few_sizes_make_no_region() -> None:
    others = [(4, 64), (64, 4)]
    assert len(others) + 1 < LEAST_EVIDENCE
    judge = Judge()
    found = concluded(Leaf(FAST), judge, [(8, 8)], others)
    assert [v for _, v in judge.asked] == [(8, 8)]
    assert leaf_of(found.tree, (8, 8)).options == FAST
    assert leaf_of(found.tree, (16, 16)).options == Options()


def test_a_loss_anywhere_leaves_the_tuned_sizes_that_won() -> None:
    """Five times slower at a neighbour, a little faster at the tuned size: no region."""
    others = [(4, 64), (64, 4), (64, 64), (4, 4)]
    judge = Judge({(64, 64): 1.6})
    found = concluded(Leaf(FAST), judge, [(8, 8), (16, 8)], others)
    assert leaf_of(found.tree, (8, 8)).options == leaf_of(found.tree, (16, 8)).options == FAST
    for other in (*others, (12, 8)):
        assert leaf_of(found.tree, other).options == Options()


def test_a_tuned_size_that_does_not_win_has_the_default() -> None:
    judge = Judge({(8, 8): 0.8, (16, 8): -0.005})
    found = concluded(Leaf(FAST), judge, [(8, 8), (16, 8), (32, 8)])
    options = [leaf_of(found.tree, v).options for v in ((8, 8), (16, 8), (32, 8))]
    assert options == [Options(), Options(), FAST]
    assert found.confirmed[8, 8] == Ratio(0.0, 0.0, 2e-6)


def test_noise_is_told_and_leaves_the_default() -> None:
    found = concluded(Leaf(FAST), Judge(noise=0.3), [(8, 8), (9, 9)])
    assert found.tree == Leaf(Options())
    (note,) = found.notes
    assert (
        note
        == "too noisy: copies of the default differed by up to 30 %; at 2 sizes the default stays"
    )


def test_without_time_nothing_is_kept_and_that_is_told() -> None:
    found = concluded(Leaf(FAST), Judge(most=0), [(8, 8)])
    assert found.tree == Leaf(Options()) and found.notes == (LATE,)
    assert found.confirmed == {(8, 8): Ratio(0.0, 0.0, 2e-6)}


def test_leaves_are_judged_by_themselves() -> None:
    tree = Split(
        Predicate((0,), 100), Leaf(FAST), Split(Predicate((1,), 50), Leaf(WIDE), Leaf(FAST))
    )
    tuned = [(200, 8), (8, 64), (8, 8)]
    judge = Judge({(200, 8): 0.5})
    found = concluded(tree, judge, tuned)
    assert {v: o for o, v in judge.asked} == {tuned[0]: FAST, tuned[1]: WIDE, tuned[2]: FAST}
    options = [leaf_of(found.tree, v).options for v in tuned]
    assert options == [Options(), WIDE, FAST]


def test_ctrl_c_keeps_what_was_confirmed() -> None:
    class Interrupted(Judge):
        def verdict(self, options: Options, values: Values) -> Verdict | str:
            if len(self.asked) == 1:
                raise KeyboardInterrupt
            return super().verdict(options, values)

    found = concluded(Leaf(FAST), Interrupted(), [(8, 8), (9, 9)])
    assert found.is_interrupted
    assert leaf_of(found.tree, (8, 8)).options == FAST
    assert leaf_of(found.tree, (9, 9)).options == Options()


def test_what_is_kept_at_most_is_known_before_anything_is_confirmed() -> None:
    tree = Split(Predicate((0,), 100), Leaf(FAST), Leaf(WIDE))
    few, others = [(200, 8)], [(8, 8), (9, 9), (30, 8), (8, 30)]
    weights, extra = dict.fromkeys(few, 1.0), dict.fromkeys(others, 0.1)
    asked = if_all_wins(tree, weights, extra, is_everywhere=False)
    assert asked == concluded(tree, Judge(), few, others).tree
    assert len(set(contexts(asked, NAMES))) == 4
    assert if_all_wins(Leaf(FAST), weights, extra, is_everywhere=True) == Leaf(FAST)
