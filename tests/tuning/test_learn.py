# SPDX-License-Identifier: Apache-2.0
"""Trees, timing, spaces, searches: the tuner's parts by themselves."""

from __future__ import annotations

import itertools
import json
import math
import random
import types
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcsym.compiler import analyse
from tcsym.errors import OptionError
from tcsym.index.values import holds
from tcsym.options import Options
from tcsym.sizes.dims import Dim
from tcsym.target.names import resolve_target
from tcsym.tuning.distribution import distance, distribution_of
from tcsym.tuning.genetic import Genetic
from tcsym.tuning.grow_tree import _between, _simplest, questions
from tcsym.tuning.guided import Guided
from tcsym.tuning.learn import Between, learn_tree, prove_partition
from tcsym.tuning.race import Attempt
from tcsym.tuning.smooth import predicted
from tcsym.tuning.space import AXES, Space, space_of, value_of
from tcsym.tuning.survey import AT_ONCE, LEAST, SETTLED, survey, worth_having
from tcsym.tuning.timing import Ratio, compare, compare_all, estimate
from tcsym.tuning.tree import (
    Box,
    Leaf,
    Predicate,
    Split,
    Tree,
    contexts,
    depth_of,
    joined,
    leaf_of,
    tree_from_json,
    tree_text,
    tree_to_json,
)
from tests.tuning.faults import MM

NAMES = ("A", "B", "C")
_sizes = st.tuples(*[st.integers(0, 5000)] * 3)
_positions = st.sampled_from([(0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)])
_predicates = (
    st.builds(Predicate, _positions, st.integers(0, 10**6))
    | st.integers(1, 32).flatmap(
        lambda d: st.builds(Predicate, _positions, st.integers(0, d - 1), st.just(d))
    )
    | st.builds(
        Predicate,
        _positions,
        st.integers(0, 100),
        st.just(0),
        st.sampled_from([(0,), (1,), (1, 2)]),
        st.integers(1, 9),
    )
)
_leaves = st.builds(
    Leaf, st.builds(Options, min_work_per_thread=st.integers(0, 14), parallelize=st.booleans())
)
_bounds = st.tuples(st.integers(0, 500), st.integers(400, 10**6))
_tests = _predicates | st.builds(Box, st.tuples(_bounds, _bounds, _bounds))
_trees: st.SearchStrategy[Tree] = st.recursive(
    _leaves, lambda below: st.builds(Split, _tests, below, below), max_leaves=6
)


@given(_trees, _sizes)
def test_one_context_of_a_tree_holds_and_it_is_the_leafs(tree: Tree, sizes: Any) -> None:
    values = dict(zip(NAMES, sizes))
    holding = [options for context, options in contexts(tree, NAMES) if holds(context, values)]
    assert holding == [leaf_of(tree, sizes).options]


@given(_trees)
def test_json_gives_the_tree_back(tree: Tree) -> None:
    assert tree_from_json(json.loads(json.dumps(tree_to_json(tree))), 3) == tree


@settings(max_examples=40)
@given(_trees)
def test_isl_proves_any_tree_a_partition(tree: Tree) -> None:
    prove_partition(tree, NAMES)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"options": {"nothing": 1}},
        {"if": "n3 >= 4", "then": {"options": {}}, "else": {"options": {}}},
        {"if": "n0 % 0 == 0", "then": {"options": {}}, "else": {"options": {}}},
        {"if": "n0 > 4", "then": {"options": {}}, "else": {"options": {}}},
        {"if": "n0 >= 4", "then": {"options": {}}},
        {"if": "1 <= n0 <= 4", "then": {"options": {}}, "else": {"options": {}}},
        {
            "if": "1 <= n0 <= 4 and 1 <= n2 <= 4 and 1 <= n1 <= 4",
            "then": {"options": {}},
            "else": {"options": {}},
        },
    ],
)
def test_what_is_no_tree_is_an_error(data: Any) -> None:
    with pytest.raises(OptionError):
        tree_from_json(data, 3)


def test_a_tree_too_deep_is_an_error() -> None:
    data: Any = {"options": {}}
    for _ in range(50):
        data = {"if": "n0 >= 4", "then": data, "else": data}
    with pytest.raises(OptionError):
        tree_from_json(data, 3)


def test_a_tree_reads_well() -> None:
    tree = Split(Predicate((0, 2), least=4096), Leaf(Options(parallelize=False)), Leaf(Options()))
    assert tree_text(tree, NAMES) == "if A*C >= 4096:\n  parallelize=False\nelse:\n  defaults"
    twice = Split(Predicate((1,), least=3), tree, Leaf(Options(parallelize=False)))
    expected = """if B >= 3:
  if A*C >= 4096:
    options 1
  else:
    defaults
else:
  options 1
options 1: parallelize=False"""
    assert tree_text(twice, NAMES) == expected


# ---- learning

_costs = st.dictionaries(
    st.builds(Options, min_work_per_thread=st.integers(1, 9)),
    st.lists(st.floats(-1, 1), min_size=5, max_size=5),
    max_size=6,
)
_points = st.lists(_sizes, min_size=5, max_size=5, unique=True)


@settings(max_examples=60)
@given(_costs, _points)
def test_what_is_learned_is_a_partition_no_worse_than_the_default(
    costs: dict[Options, list[float]], points: list[Any]
) -> None:
    ratios = {o: {v: Ratio(c, 0.01, 1.0) for v, c in zip(points, cs)} for o, cs in costs.items()}
    ratios[Options()] = {v: Ratio(0.0, 0.0, 1.0) for v in points}
    tree = learn_tree(ratios, dict.fromkeys(points, 0.2)).tree
    prove_partition(tree, NAMES)
    mean = sum(ratios[leaf_of(tree, v).options][v].log for v in points) / len(points)
    assert mean <= 1e-9


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_thresholds_separate(low: int, more: int) -> None:
    assert low < _between(low, low + more) <= low + more


_extents = st.integers(1, 500)


@given(_extents, _extents, _extents, _extents)
def test_fractions_separate(a: int, b: int, c: int, d: int) -> None:
    low, high = sorted((Fraction(a, b), Fraction(c, d)))
    if low < high:
        assert low < _simplest(float(low), float(high)) <= high
    assert _simplest(float(low), math.inf) > low


@given(st.lists(_sizes, min_size=2, max_size=30))
def test_what_tells_sizes_apart_tells_the_same_as_a_predicate(points: list[Any]) -> None:
    values = np.array(points)
    for question in questions(3):
        answers = sorted(set(question.answers(values).tolist()))
        for low, high in pairwise(answers):
            test = question.between(low, high)
            expected = [a >= high for a in question.answers(values).tolist()]
            assert [test.holds(v) for v in values.tolist()] == expected


def test_noise_makes_no_region() -> None:
    points = [(k, k, k) for k in (4, 8, 16, 32)]
    rng = random.Random(0)
    ratios = {
        Options(min_work_per_thread=r): {v: Ratio(rng.gauss(0, 0.02), 0.02, 1.0) for v in points}
        for r in range(1, 5)
    }
    ratios[Options()] = {v: Ratio(0.0, 0.0, 1.0) for v in points}
    assert isinstance(learn_tree(ratios, dict.fromkeys(points, 0.25)).tree, Leaf)


FAST, WIDE = Options(chains=2), Options(parallel_loops=2)


def _grid(cost: Any, n: int = 160) -> tuple[dict[Options, dict[Any, Ratio]], dict[Any, float]]:
    """Random sizes with what `cost(options, size)` says, in logarithms by the default's time."""
    rng = random.Random(1)
    points = [tuple(round(2 ** rng.uniform(0, 9)) for _ in NAMES) for _ in range(n)]
    options = (Options(), FAST, WIDE)
    costs = {o: {v: Ratio(cost(o, v), 0.005, 1e-5) for v in points} for o in options}
    return costs, dict.fromkeys(dict.fromkeys(points), 1 / n)


def _by_work(o: Options, v: Any) -> float:
    """Small work likes FAST, wide rows like WIDE: smooth in the logarithm of each."""
    work, wide = math.log2(math.prod(v)) - 14, math.log2(v[2]) - 5
    return {FAST: 0.05 * work, WIDE: -0.08 * wide}.get(o, 0.0)


def test_regions_from_many_sizes_hold_at_others() -> None:
    costs, weights = _grid(_by_work)
    between = [v for v in _grid(_by_work, 600)[1] if v not in weights]
    learned = learn_tree(costs, weights, None, Between(between))
    tree = learned.tree
    prove_partition(tree, NAMES)
    found = [_by_work(leaf_of(tree, v).options, v) for v in between]
    best = [min(0.0, _by_work(FAST, v), _by_work(WIDE, v)) for v in between]
    lost = [f - b for f, b in zip(found, best)]
    assert sum(lost) / len(lost) < 0.03
    assert max(lost) < 0.3
    some = learned.held_out
    assert list(some) == list(weights)
    assert sum(some.values()) / len(some) < 0.04


def test_an_estimate_tells_where_options_jump() -> None:
    """WIDE pays where 7 rows fill a tile: no threshold of sizes says where, and no distance."""

    def jumps(o: Options, v: Any) -> float:
        return (0.4 if v[0] % 7 else -0.4) if o == WIDE else 0.0

    costs, weights = _grid(jumps)
    measured = np.array(list(weights))
    others = np.array([v for v in _grid(jumps, 600)[1] if v not in weights])
    logs = np.array([[costs[o][tuple(v)].log for o in costs] for v in measured.tolist()])

    def estimates(sizes: Any) -> Any:  # half of the truth
        return np.array([[0.5 * jumps(o, v) for o in costs] for v in sizes.tolist()])

    wanted = np.array([[jumps(o, v) for o in costs] for v in others.tolist()])
    blind = predicted(measured, logs, others)
    told = predicted(measured, logs, others, estimates(measured), estimates(others))
    assert abs(told - wanted).mean() < 0.2 * abs(blind - wanted).mean()


def test_large_losses_count_more_than_many_small_ones() -> None:
    def risky(o: Options, v: Any) -> float:
        return {FAST: 0.7 if v[0] % 7 == 3 else -0.05, WIDE: -0.01}.get(o, 0.0)

    costs, weights = _grid(risky, 30)
    assert leaf_of(learn_tree(costs, weights, 0).tree, (3, 3, 3)).options == WIDE


def test_prediction_follows_what_is_measured() -> None:
    costs, weights = _grid(_by_work)
    measured = np.array(list(weights))
    logs = np.array([[costs[o][tuple(v)].log for o in costs] for v in measured.tolist()])
    others = np.array([(16, 16, 16), (256, 200, 300), (3, 90, 14)])
    wanted = [[_by_work(o, v) for o in costs] for v in others.tolist()]
    np.testing.assert_allclose(predicted(measured, logs, others), wanted, atol=0.06)


def test_what_is_worth_having_complements_the_rest() -> None:
    points = [(k,) for k in range(10)]

    def attempt(o: Options, logs: Any) -> Attempt:
        return Attempt(o, "measured", "", {v: Ratio(x, 0.0, 1.0) for v, x in zip(points, logs)})

    default = attempt(Options(), [0.0] * 10)
    left = attempt(FAST, [-0.3] * 5 + [0.3] * 5)
    right = attempt(WIDE, [0.3] * 5 + [-0.3] * 5)
    middling = attempt(Options(min_work_per_thread=2), [-0.1] * 10)
    like = attempt(Options(min_work_per_thread=3), [-0.299] * 5 + [0.3] * 5)
    chosen = worth_having([default, like, middling, left, right], points, 8)
    assert [a.options for a in chosen[:1]] == [Options()]
    assert {id(left), id(right)} <= {id(a) for a in chosen}
    assert id(like) not in {id(a) for a in chosen}


def test_what_is_rarely_the_best_stays_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are grown from few options at many sizes; what they leave out is not forgotten."""
    rows = [Options(min_work_per_thread=n) for n in range(5, 17)]
    measured: list[list[Options]] = []

    def measure(_race: Any, some: Sequence[Attempt], sizes: Any, *_: float) -> None:
        measured.append([a.options for a in some])
        for a, (k,) in itertools.product(some, sizes):
            best = a.options.min_work_per_thread - 5 == k % 12
            a.ratios[k,] = Ratio(-0.3 if best else 0.0, 0.0, 1.0)

    monkeypatch.setattr("tcsym.tuning.survey.measure_field", measure)
    race: Any = types.SimpleNamespace(is_over=lambda: len(measured) == 12)
    attempts = [Attempt(o, "measured") for o in (Options(), *rows)]
    candidates = survey(race, attempts, [(k,) for k in range(400)])
    assert set(candidates) == {Options(), *rows}
    assert [len(some) for some in measured] == [13] * (SETTLED // AT_ONCE) + [LEAST] * 6


# ---- timing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("tcsym.tuning.timing.time", made)
    return made


class Clock:
    """A clock that only calls move: each by its own time, disturbed as on a busy machine."""

    def __init__(self) -> None:
        self.now = 0.0
        self.random = random.Random(0)

    def perf_counter(self) -> float:
        return self.now

    def call(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            busy = self.random.random() < 0.1
            self.now += seconds * (self.random.uniform(1.0, 1.02) + 3.0 * busy)

        return run


def test_many_calls_in_turn(clock: Clock) -> None:
    calls = [clock.call(1e-4), clock.call(1e-4), clock.call(2e-3)]
    first, same, slow = compare_all(calls, 0.2, 0.005)
    assert first.log == 0.0
    assert abs(same.log) < 0.1
    assert slow.log > 1.0
    assert slow.gave_up
    assert not same.gave_up


def test_estimate_of_quickest_times() -> None:
    rounds = [(2.0, 1.0), (2.0, 1.0), (9.0, 1.0), (2.0, 7.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0)]
    log, noise = estimate(rounds)
    assert log == pytest.approx(math.log(2))
    assert noise < 0.2


def test_a_clear_loser_is_given_up(clock: Clock) -> None:
    ratio = compare(clock.call(1e-3), clock.call(1e-5), 5.0, 1e-9, give_up=0.25)
    assert ratio.gave_up
    assert ratio.log > 0.25
    assert clock.now < 1.0


# ---- space and searches


def test_the_space_has_axes_that_change_code_only() -> None:
    target = resolve_target("cpu:avx2")
    matmul = space_of(analyse(MM)["mm"], target, Options(), 2)
    names = [name for name, _ in matmul.axes]
    assert {"plan[m]", "min_work_per_thread"} <= set(names)
    assert not {"fusion", "inner_fusion"} & set(names)
    assert "plan" not in names  # none of a name
    text = "def f(float(N,D) W, int32(N) I) -> (float(17,D) H) { H(I(n),d) +=! W(n,d) }"
    histogram = space_of(analyse(text)["f"], target, Options(), 1)
    assert dict(histogram.axes)["plan"] == ("", "ScatterColumns", "ScatterOrder")
    text = "def f(float(M,N) A) -> (S) { S(n) +=! A(m,n) }"
    columns = space_of(analyse(text)["f"], target, Options(), 1)
    assert "plan[n]" in dict(columns.axes)
    assert not {"fusion", "min_work_per_thread"} & set(dict(columns.axes))
    assert all(values[0] == value_of(Options(), name) for name, values in matmul.axes)


def test_every_value_of_an_axis_is_legal() -> None:
    for name, values in AXES.items():
        for value in values:
            Options(**{name: value})


DEFAULT = Options()
SPACE = Space(
    (
        ("chains", (0, 1, 2, 3, 4, 5, 6, 8)),
        ("min_work_per_thread", (DEFAULT.min_work_per_thread, 1, 2, 3, 4)),
        ("max_operations", (DEFAULT.max_operations, 1, 2, 8)),
        ("parallelize", (True, False)),
        ("plan", ("", "A", "B", "C", "D")),
    ),
)


def _cost(o: Options) -> float:
    """The least where one field is 6, one 2, and two have the best of few values."""
    known = {0: 6, DEFAULT.min_work_per_thread: 2}
    tile = known.get(o.chains, o.chains) * known.get(o.min_work_per_thread, o.min_work_per_thread)
    rest = 0.1 * (not o.parallelize) - 0.05 * (o.max_operations == 2)
    return math.exp(0.02 * abs(tile - 12) + rest)


@pytest.mark.parametrize("kind", [Guided, Genetic])
def test_a_search_finds_the_best_of_1600_points_in_150(kind: Any) -> None:
    search = kind(SPACE, [], random.Random(3))
    search.tell([(Options(), [1.0])])
    best, asked = 1.0, set()
    for _ in range(19):
        batch = search.ask(8)
        assert not asked & set(batch)
        asked |= set(batch)
        search.tell([(o, [_cost(o)]) for o in batch])
        best = min(best, *map(_cost, batch))
    assert best <= math.exp(-0.05) * 1.001


@pytest.mark.parametrize("kind", [Guided, Genetic])
def test_a_search_ends_when_all_is_tried(kind: Any) -> None:
    space = Space((("chains", (0, 1, 2)), ("parallelize", (True, False))))
    search = kind(space, [], random.Random(0))
    search.tell([(Options(), [1.0])])
    asked: list[Options] = []
    while batch := search.ask(4):
        asked += batch
        search.tell([(o, [1.0 + 0.1 * o.chains]) for o in batch])
    assert len(asked) == len(set(asked)) == 5


def test_failures_do_not_stop_a_search() -> None:
    for kind in (Guided, Genetic):
        search = kind(SPACE, [], random.Random(0))
        for _ in range(6):
            search.tell([(o, []) for o in search.ask(8)])
        assert search.ask(8)


# ---- distributions


def test_sizes_are_drawn_from_ranges_and_obey_the_program() -> None:
    text = "def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i+k) * w(k) }"
    program = analyse(text)["f"]
    found = distribution_of(program, {"K": Dim(1, 64), "N": Dim(8, 512, 8)}, {}, None, 0)
    ranges = {"K": range(1, 65), "N": range(8, 513, 8)}
    assert distribution_of(program, ranges, {}, None, 0) == found
    assert len(found.sizes) == 6
    for values in (*found.sizes, *found.draw(program, 50, 3)):
        named = dict(zip(program.sizes, values))
        assert 8 <= named["N"] <= 512
        assert named["N"] % 8 == 0
        assert named["K"] <= named["N"] + 1
    assert not set(found.sizes) & set(found.draw(program, 50, 3))


def test_sizes_that_cover_a_range_have_corners_and_middles() -> None:
    program = analyse(MM)["mm"]
    found = distribution_of(program, {n: Dim(1, 512) for n in "MNK"}, {}, None, 0)
    assert found.is_drawn
    assert any(min(v) <= 8 for v in found.sizes)
    assert any(math.prod(v) >= 2**18 for v in found.sizes)
    visited = found.visited(program, 90, 1)
    corners = [v for k, v in enumerate(visited) if k % 3 == 2]
    assert sum(min(v) <= 8 for v in corners) > 20
    pool = found.visited(program, 200, 0)
    away = [min(distance(c, v) for c in found.sizes) for v in pool]
    at_random = [min(distance(c, v) for c in pool[:6]) for v in pool]
    assert sum(away) < sum(at_random)


def test_weights_are_shares() -> None:
    program = analyse(MM)["mm"]
    sizes = [{"M": 1, "N": 2, "K": 3}, {"M": 4, "N": 5, "K": 6}, {"M": 1, "N": 2, "K": 3}]
    found = distribution_of(program, sizes, {}, [1, 2, 1], 0)
    assert list(found.weights.values()) == [0.5, 0.5]


@given(_trees, _trees, st.tuples(_bounds, _bounds, _bounds), _sizes)
def test_an_earlier_tree_serves_outside_of_the_new_ones_box(
    tree: Tree, earlier: Tree, bounds: Any, sizes: Any
) -> None:
    box = Box(bounds)
    found = joined(Split(box, tree, Leaf(Options())), earlier)
    assert leaf_of(found, sizes) == leaf_of(tree if box.holds(sizes) else earlier, sizes)
    again = joined(Split(box, tree, Leaf(Options())), found)
    assert depth_of(again) <= depth_of(found)
    assert joined(tree, earlier) == tree or isinstance(tree, Split)


def test_two_trees_of_the_same_options_are_one() -> None:
    box = Box(((0, 9), (0, 9), (0, 9)))
    found = joined(Split(box, Leaf(Options()), Leaf(Options())), Leaf(Options()))
    assert found == Leaf(Options())
