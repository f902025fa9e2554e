# SPDX-License-Identifier: Apache-2.0
"""Plans that a user writes: what prints is given back, what cannot be is refused at its place."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tcsym
from tcsym.cli.main import main
from tcsym.errors import OptionError, TCWarning
from tcsym.index.expr import condition_variables
from tcsym.index.formula import Wrong, condition_of, index_of
from tcsym.index.text import condition_text
from tcsym.index.values import evaluate, holds
from tcsym.mapping.text import parse_nests
from tcsym.options import Options
from tcsym.tuning.tree import Leaf, tree_from_json

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TWO = """def f(float(M,K) A, float(K,N) B) -> (C, D) {
  C(m,n) +=! A(m,k) * B(k,n)
  D(n) max=! C(m,n)
}"""
PACKED = """def f(int8(N,K,H,W) X, int8(O,K,3,3) F) -> (Y) {
  Y(n,o,h,w) +=! int32(X(n,k,h+i,w+j)) * int32(F(o,k,i,j))
}"""
X = np.arange(35, dtype=np.float32).reshape(5, 7)
Y = np.arange(63, dtype=np.float32).reshape(7, 9)


def plan_of(source: str, options: Options, **how: object) -> str:
    return str(tcsym.define(source, target="cpu:avx2", options=options, **how).f.explain("plan"))  # type: ignore[arg-type]


def bare(text: str) -> list[str]:
    """Without comments: names of versions, and what options there were."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line]


@pytest.mark.parametrize("source", [MATMUL, TWO, PACKED])
@pytest.mark.parametrize("k", [range(1, 99), tcsym.Dim(multiple_of=8), 5])
def test_what_prints_is_given_back(source: str, k: object) -> None:
    how = {"sizes": {"K": k}}
    text = plan_of(source, Options(), **how)
    assert bare(text)[0].endswith(":")
    again = plan_of(source, Options(plan=text), **how)
    assert bare(again) == bare(text)


def test_a_plan_is_changed() -> None:
    text = "if 3 >= M:\n  split n tile lane:8; order m n.tile\nelse:\n  split m tile reg:2"
    f = tcsym.define(MATMUL, target="cpu:avx2", plan=text + "\n  order m.tile n").f
    np.testing.assert_array_equal(f(X, Y), X @ Y)
    np.testing.assert_array_equal(f(X[:2], Y), X[:2] @ Y)
    shown = bare(str(f.explain("plan")))
    assert shown[:3] == ["m:", "  if 3 >= M:", "    split n tile lane:8"]
    assert "unrolled m.reg" in f.explain("mapped")


def test_options_keep_it() -> None:
    options = Options(plan="m: split m tile reg:4\n  order m.tile n  # rows")
    assert Options.from_json(options.to_json()) == options
    assert str(options) == "plan=m: split m tile reg:4 order m.tile n"
    with pytest.raises(OptionError, match="two plans"):
        tcsym.define(MATMUL, options=options, plan="split m tile reg:4")


WRONG = {
    "m:\n  splat m tile": ("there is no directive `splat`", 2, 3, "did you mean `split`?"),
    "order m n; stage B k": ("no form of `stage`", 1, 12, "write `stage TENSOR at LOOP order"),
    "split m tile reg:2 end=foo": ("`foo` is none of mask, half", 1, 24, ""),
    "split m tile:(2": ("`(2` ends too early", 1, 14, ""),
    "if N >: split m tile": ("`N >` ends too early", 1, 4, ""),
    "if N: split m tile": ("`N` is no condition", 1, 4, ""),
    "if N > 3: order m n": ("no plan for all other sizes", 1, 4, "end with `else:`"),
    "m:\n  order m n\n  if N > 3: order m n": ("no size is left for this version", 3, 6, ""),
    "m:\n  order m n\nm:\n order m n": ("a second plan for the nest m", 3, 1, ""),
    "m: \n#": ("no plan for the nest m", 1, 1, "directives are split"),
}
UNMET = {
    "q: split m tile reg:4": ("there is no nest q", 1, 1, "nests are m"),
    "split n tile lane:1; order m n.tile": ("a vector has 2, 4", 1, 1, ""),
    "order m n; split q tile reg:4": ("there is no loop q", 1, 12, "loops are m, n, k"),
    "split m tile reg:max(1,Q)": ("there is no size Q", 1, 1, "sizes are K, M, N"),
    "if Q > 1:\n order m n\nelse:\n order m n": ("there is no size Q", 1, 4, "sizes are K, M, N"),
    "if N > 1:\n order m n\nelse:\n order m": (
        "an order names all loops of a band",
        4,
        2,
        "loops are m, n",
    ),
    "split n tile lane:8\norder m n.tile\nstage B at m order n.tile n.lane": (
        "k moves B, too",
        3,
        1,
        "",
    ),
}


@pytest.mark.parametrize("text", [*WRONG, *UNMET])
def test_what_cannot_be_is_refused_at_its_place(text: str) -> None:
    message, line, column, hint = (WRONG | UNMET)[text]
    with pytest.raises(OptionError) as error:
        tcsym.define(MATMUL, target="cpu:avx2", plan=text).f(X, Y)
    assert message in error.value.message and hint in error.value.hint
    assert (error.value.line, error.value.column, error.value.filename) == (line, column, "<plan>")
    assert text.splitlines()[line - 1] in str(error.value) and "^" in str(error.value)


def test_a_plan_for_one_of_two_nests() -> None:
    with pytest.raises(OptionError, match="a plan for one of 2 nests") as error:
        tcsym.define(TWO, plan="split m tile reg:4; order m.tile n").f(X, Y)
    assert error.value.hint.startswith("begin with `")
    f = tcsym.define(TWO, target="cpu:avx2", plan="m: split m tile reg:4; order m.tile n").f
    np.testing.assert_array_equal(f(X, Y).C, X @ Y)
    assert len([x for x in f.explain("plan").splitlines() if x.endswith(":")]) == 2


def test_where_a_call_says_more_it_is_told() -> None:
    """A variant whose arguments leave the nest other loops runs without the plan."""
    options = Options(plan="split k tile reg:4; combine k", bind={"K": "before"})
    with pytest.warns(TCWarning, match="parts that are no vectors") as found:
        np.testing.assert_array_equal(tcsym.define(MATMUL, options=options).f(X, Y), X @ Y)
    (warning,) = [x.message for x in found]
    assert isinstance(warning, TCWarning) and (warning.line, warning.column) == (1, 21)


def test_the_command_takes_it(tmp_path: Path) -> None:
    file, plan = tmp_path / "f.tc", tmp_path / "f.plan"
    file.write_text(MATMUL)
    shown = CliRunner().invoke(main, ["show", str(file), "plan"])
    plan.write_text(shown.output)
    how = ["run", str(file), "--sizes", "M=3,N=9,K=5", "--check", "--plan", str(plan)]
    assert CliRunner().invoke(main, how).exit_code == 0
    plan.write_text("split q tile reg:4")
    told = CliRunner().invoke(main, how)
    assert told.exit_code != 0 and "there is no loop q" in told.output + str(told.stderr)


# ---- formulas


@pytest.mark.parametrize("seed", range(40))
def test_formulas_print_and_parse(seed: int) -> None:
    """What a formula or a condition prints has its value."""
    r = random.Random(seed)

    def formula(depth: int) -> str:
        if depth == 0:
            return r.choice(["M", "N", "K.stride0", "1", "17"])
        a, b = formula(depth - 1), formula(depth - 1)
        return r.choice([f"{a} + {b}", f"({a}) - {b}", f"({a})*({b})", f"({a})/{r.randint(1, 9)}"])

    def condition(depth: int) -> str:
        if depth == 0:
            a, b = formula(2), f"max({formula(1)}, {formula(0)})"
            return f"{a} {r.choice(['>=', '<', '==', '!=', '<=', '>'])} {b}"
        a, b = condition(depth - 1), condition(depth - 1)
        return r.choice([f"{a} && {b}", f"({a}) || {b}", f"!({a}) && {b}"])

    text = condition(2)
    c, e = condition_of(text), index_of(formula(3))
    for _ in range(9):
        sizes = {"M": r.randint(0, 40), "N": r.randint(0, 40), "K.stride0": r.randint(0, 40)}
        python = text.replace("&&", "and").replace("||", "or").replace("!(", "not (")
        value = eval(
            python.replace("/", "//").replace("K.stride0", "S"), {"S": sizes["K.stride0"], **sizes}
        )
        assert holds(c, sizes) == value
        assert holds(condition_of(condition_text(c)), sizes) == value
        assert evaluate(index_of(str(e)), sizes) == evaluate(e, sizes)
    assert condition_variables(c) <= {"M", "N", "K.stride0"}


@pytest.mark.parametrize("text", ["", "M +", "M N", "(M", "1 > ", "M > N > 1", "max(M", "M/0", "?"])
def test_what_is_no_formula(text: str) -> None:
    for read in (index_of, condition_of):
        with pytest.raises(Wrong):
            read(text)


def test_deep_formulas_are_refused() -> None:
    for text in ("(" * 500 + "M" + ")" * 500, "-" * 5000 + "M > 0)"):
        with pytest.raises(Wrong):
            condition_of(text)


def test_any_text_is_read_or_refused() -> None:
    """Texts that are nearly plans: an error of ours or a plan, whatever is cut out of one."""
    text = "m:\n  if 4 >= N && K > 2:\n    split m tile reg:2; stage B at n order k as turned\n"
    text += "  else:\n    order m n\n"
    for k in range(len(text)):
        for n in (1, 5, 20):
            try:
                parse_nests(text[:k] + text[k + n :])
            except OptionError as error:
                assert error.line >= 1 or error.hint


def test_a_device_has_no_directives() -> None:
    text = "split m tile reg:4; order m.tile n"
    f = tcsym.define(MATMUL, target="cuda:sm_80", plan=text).f
    assert "# <plan>:1:1: directives are for processors" in f.explain("plan")


def test_kept_trees_of_options_take_it() -> None:
    """A tree of options, as tuning keeps them, has plans as texts; no other text is one."""
    data = {"options": {"plan": "m: split m tile reg:4; order m.tile n"}}
    assert tree_from_json(data, 3) == Leaf(Options(**data["options"]))
    with pytest.raises(OptionError, match="there is no directive `spl`"):
        tree_from_json({"options": {"plan": "m: spl m"}}, 3)
