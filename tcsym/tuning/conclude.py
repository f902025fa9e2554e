"""Measurements -> the tree of regions, every leaf measured again against the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tcsym.options import Options
from tcsym.records import dataclass
from tcsym.tuning.distribution import Values
from tcsym.tuning.learn import NOWHERE, Between, learn_tree, prove_partition
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT
from tcsym.tuning.survey import measure_field
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Tree, leaf_of, leaves_of
from tcsym.tuning.trials import Trials

OTHERS_CONFIRMED = 6
CONFIRMED, CONFIRMED_PRECISION = 0.15, 0.004
Weights = Mapping[Values, float]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The tree; its ratios to the default at the tuned sizes; Ctrl-C ended the confirmation.

    held_out: what trees learned without them lose at some of the sizes (`learn.Learned`).
    """

    tree: Tree
    confirmed: Mapping[Values, Ratio]
    is_interrupted: bool = False
    held_out: Mapping[Values, float] = field(default_factory=dict)


def conclude(
    race: Race,
    trials: Trials,
    incumbent: Attempt,
    weights: Weights,
    extra: Weights,
    between: Between = NOWHERE,
    deepest: int | None = None,
) -> Conclusion:
    """Learn a tree from all that was measured; options that lose when measured again are out.

    weights: of the tuned sizes. extra: of the others that were visited, relative to these.
    between: sizes that nobody visited, for which the tree should hold, too.
    """
    everywhere = (*weights, *extra)
    usable = {
        a.options: a.ratios
        for a in (*trials.attempts, incumbent)
        if a.state == "measured" and all(v in a.ratios for v in everywhere)
    }
    learned = {**weights, **extra}
    names = trials.program.sizes
    while True:
        found = learn_tree(usable, learned, deepest, between)
        tree = found.tree
        prove_partition(tree, names)
        confirmed: dict[Values, Ratio] = {}
        try:
            loser = _confirm(tree, race, trials.default, weights, extra, confirmed)
        except KeyboardInterrupt:
            known = {v: usable[leaf_of(tree, v).options].get(v) for v in weights}
            tuned = {v: confirmed.get(v) or r or Ratio(0, 0, 0) for v, r in known.items()}
            return Conclusion(tree, tuned, True)
        if loser is None:
            tuned = {v: confirmed[v] for v in weights}
            return Conclusion(tree, tuned, held_out=found.held_out)
        usable.pop(loser)


def _confirm(
    tree: Tree,
    race: Race,
    default: Attempt,
    weights: Weights,
    extra: Weights,
    confirmed: dict[Values, Ratio],
) -> Options | None:
    """Fill `confirmed`; the options of a leaf that is no faster than the default, if any.

    Measured at the tuned sizes that it serves and at others, weighted as the tree was learned.
    """
    for options in dict.fromkeys(leaves_of(tree)):
        tuned, others = (
            [v for v in some if leaf_of(tree, v).options == options] for some in (weights, extra)
        )
        sizes = (*tuned, *others[:OTHERS_CONFIRMED])
        if options == DEFAULT:
            confirmed |= {v: default.ratios[v] for v in sizes}
            continue
        again = Attempt(options, "measured")
        measure_field(race, (default, again), sizes, CONFIRMED, CONFIRMED_PRECISION)
        share = {v: extra.get(v) or weights[v] for v in sizes}
        if again.state == "failed" or again.cost(share)[0] >= 0:
            return options
        confirmed |= again.ratios
    return None
