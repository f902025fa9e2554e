# SPDX-License-Identifier: Apache-2.0
"""The tree that was learned -> what of it is kept: options that were seen to win, where they were.

A leaf governs a region only with the evidence that a certificate asks for (`certify`): confirmed at
several sizes of it, faster in the mean and at none slower, and then no further than these sizes
reach. Where there is less, options serve just the tuned sizes at which they won.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from tcsym.options import Options
from tcsym.tuning.distribution import Values, distance
from tcsym.tuning.evidence import Verdict, wins
from tcsym.tuning.request import DEFAULT
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Box, Leaf, Split, Tree, leaf_of

LEAST_EVIDENCE, MOST_EVIDENCE = 4, 6  # confirmed sizes that make a region
MOST_EXACT = 16  # tuned sizes of one leaf that are told apart
Weights = Mapping[Values, float]
Way = tuple[bool, ...]  # from the root to a leaf


class Judge(Protocol):
    """Measures again; a text says why it could not."""

    def verdict(self, options: Options, values: Values) -> Verdict | str: ...


class Conclusion(Struct, frozen=True):
    """The tree; its ratios to the default at the tuned sizes; what people should be told.

    interrupted: by Ctrl-C, before all was confirmed.
    """

    tree: Tree
    confirmed: Mapping[Values, Ratio]
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False


class _Evidence(Struct):
    """Verdicts of one leaf's options."""

    way: Way
    options: Options
    found: dict[Values, Verdict] = field(default_factory=dict)


def conclude(
    tree: Tree,
    judge: Judge,
    default: Mapping[Values, Ratio],
    saved: Mapping[Options, Mapping[Values, Ratio]],
    weights: Weights,
    extra: Weights,
    is_everywhere: bool = False,
) -> Conclusion:
    """`tree` with what is not confirmed back at the default.

    default: the default's times. saved: what the search measured, to confirm first what saves most.
    extra: weights of sizes beside the tuned ones. is_everywhere: one region, without bounds.
    """
    everywhere = {**weights, **extra}
    leaves = _governed(tree, everywhere)
    leaves.sort(key=lambda leaf: _saving(saved.get(leaf[1], {}), leaf[2], everywhere))
    kept: dict[Way, Tree] = {}
    confirmed = {v: Ratio(0.0, 0.0, default[v].seconds) for v in weights}
    notes: dict[str, None] = {}
    noisy: dict[Values, Verdict] = {}
    is_interrupted = False
    for way, options, sizes in leaves:
        evidence = _Evidence(way, options)
        try:
            _gather(evidence, judge, sizes, weights, notes)
        except KeyboardInterrupt:
            is_interrupted = True
        noisy |= {v: verdict for v, verdict in evidence.found.items() if verdict.is_noisy}
        kept[way] = _kept(evidence, everywhere, weights, is_everywhere)
        for values in weights:
            if values in sizes and leaf_of(kept[way], values).options != DEFAULT:
                confirmed[values] = _nearest(evidence, values).ratio
        if is_interrupted:
            break
    found = _rebuilt(tree, kept)
    return Conclusion(found, confirmed, (*notes, *_noise_text(noisy)), is_interrupted)


def if_all_wins(tree: Tree, weights: Weights, extra: Weights, is_everywhere: bool) -> Tree:
    """What `conclude` keeps at most: calls are told apart by no more than that."""
    kept: dict[Way, Tree] = {}
    for way, options, sizes in _governed(tree, {**weights, **extra}):
        places = _places(sizes, weights)
        if is_everywhere or len(places) >= LEAST_EVIDENCE:
            kept[way] = _region(options, places, is_everywhere)
        else:
            kept[way] = _alone(options, places)
    return _rebuilt(tree, kept)


def _governed(tree: Tree, everywhere: Weights) -> list[tuple[Way, Options, list[Values]]]:
    """Leaves that are not the default's, with the sizes that lie in them."""
    return [
        (way, options, [v for v in everywhere if _way_of(tree, v) == way])
        for way, options in _leaves(tree)
        if options != DEFAULT
    ]


def _gather(
    evidence: _Evidence,
    judge: Judge,
    sizes: Sequence[Values],
    weights: Weights,
    notes: dict[str, None],
) -> None:
    """Verdicts at tuned sizes, and at others as long as the options may govern a region."""
    for values in _places(sizes, weights):
        if values not in weights and any(v.is_lost for v in evidence.found.values()):
            break
        verdict = judge.verdict(evidence.options, values)
        if isinstance(verdict, str):
            notes.setdefault(verdict)
            break
        evidence.found[values] = verdict


def _places(sizes: Sequence[Values], weights: Weights) -> list[Values]:
    """The tuned sizes; if there are sizes enough for a region, others far from one another."""
    tuned = [v for v in sizes if v in weights][:MOST_EXACT]
    if len(sizes) < LEAST_EVIDENCE:
        return tuned
    places, others = list(tuned), [v for v in sizes if v not in weights]
    while others and len(places) < MOST_EVIDENCE:
        far = max(others, key=lambda v: min((distance(v, p) for p in places), default=0.0))
        others.remove(far)
        places.append(far)
    return places


def _kept(evidence: _Evidence, everywhere: Weights, weights: Weights, is_everywhere: bool) -> Tree:
    """What takes the leaf's place."""
    found = evidence.found
    weighed = [(everywhere[v], verdict) for v, verdict in found.items()]
    if len(found) >= LEAST_EVIDENCE and wins(weighed):
        return _region(evidence.options, list(found), is_everywhere)
    won = [v for v, verdict in found.items() if v in weights and verdict.is_won]
    return Leaf(DEFAULT) if is_everywhere else _alone(evidence.options, won)


def _region(options: Options, sizes: Sequence[Values], is_everywhere: bool) -> Tree:
    leaf = Leaf(options)
    return leaf if is_everywhere else Split(hull(sizes), leaf, Leaf(DEFAULT))


def _alone(options: Options, sizes: Sequence[Values]) -> Tree:
    """At just these sizes."""
    tree: Tree = Leaf(DEFAULT)
    for values in sizes:
        tree = Split(hull([values]), Leaf(options), tree)
    return tree


def hull(sizes: Sequence[Values]) -> Box:
    """The least box that has all of these."""
    return Box(tuple((min(column), max(column)) for column in zip(*sizes)))


def _nearest(evidence: _Evidence, values: Values) -> Verdict:
    return evidence.found[min(evidence.found, key=lambda v: distance(v, values))]


def _saving(ratios: Mapping[Values, Ratio], sizes: Sequence[Values], weights: Weights) -> float:
    return sum(weights[v] * ratios[v].log for v in sizes if v in ratios)


def _noise_text(noisy: Mapping[Values, Verdict]) -> list[str]:
    if not noisy:
        return []
    where = f"at {len(noisy)} size{'s' * (len(noisy) > 1)} the default stays"
    if any(v.is_crowded for v in noisy.values()):
        return [f"too noisy: threads waited for cores that other programs used; {where}"]
    worst = max(v.noise for v in noisy.values())
    seen = f"differed by up to {100 * worst:.0f} %" if worst < 10 else "were timed too few times"
    return [f"too noisy: copies of the default {seen}; {where}"]


# ---- trees


def _leaves(tree: Tree, way: Way = ()) -> Iterator[tuple[Way, Options]]:
    if isinstance(tree, Leaf):
        yield way, tree.options
        return
    yield from _leaves(tree.then, (*way, True))
    yield from _leaves(tree.orelse, (*way, False))


def _way_of(tree: Tree, values: Values) -> Way:
    way: list[bool] = []
    while isinstance(tree, Split):
        way.append(tree.test.holds(values))
        tree = tree.then if way[-1] else tree.orelse
    return tuple(way)


def _rebuilt(tree: Tree, kept: Mapping[Way, Tree], way: Way = ()) -> Tree:
    """With other leaves: those of `kept`, else the default; equal sides need no test."""
    if isinstance(tree, Leaf):
        return kept.get(way, Leaf(DEFAULT))
    then = _rebuilt(tree.then, kept, (*way, True))
    orelse = _rebuilt(tree.orelse, kept, (*way, False))
    return then if then == orelse else Split(tree.test, then, orelse)
