# SPDX-License-Identifier: Apache-2.0
"""Planted bugs in what is found out about a program: index expressions, ranges, dependences."""

from __future__ import annotations

from tests.mutants.model import Mutant

MUTANTS = (
    # ---- index expressions
    Mutant(
        "quotient-by-gcd-rounds-up",
        "a quotient divided by a common factor rounds its constant up",
        "floordiv",
        "remainder // g, n // g",
        "-(-remainder // g), n // g",
    ),
    Mutant(
        "ceiling-loses-one",
        "a ceiling forgets a remainder of one: the last tile of n*k + 1 points",
        "ceildiv",
        "+ n - 1, n)",
        "+ maximum(n - 2, 0), n)",
    ),
    Mutant(
        "nested-minimum-loses-constant",
        "minimum(minimum(a, b) + c, d) becomes minimum(a, b, d)",
        "_extremum",
        "[y + a.constant for y in inner.args]",
        "[*inner.args]",
    ),
    Mutant(
        "negation-keeps-the-edge",
        "the negation of x >= 0 holds at x = 0 too",
        "negate",
        "return ge(-i, 1)",
        "return ge(-i, 0)",
    ),
    Mutant(
        "declared-range-decides-at-edge",
        "a condition that fails at the end of a declared range is taken to hold",
        "decided",
        "if found.low is not None and found.low >= 0:",
        "if found.low is not None and found.low >= -1:",
    ),
    # ---- ranges and checks
    Mutant(
        "inferred-range-one-short",
        "a range whose variable has a coefficient other than 1 ends one early",
        "_solve",
        "bounds.upper.append(floordiv(rest, -n) + 1)",
        "bounds.upper.append(floordiv(rest, -n) + (1 if n == -1 else 0))",
    ),
    Mutant(
        "plain-read-is-inside",
        "a plain index variable is inside of every dimension",
        "_is_plain_index",
        "i.variable == name and i.upper == extent and i.lower == ZERO",
        "i.variable == name and i.lower == ZERO",
    ),
    Mutant(
        "literal-widens-nothing",
        "an integer literal takes the type of a narrow integer beside it",
        "_with_literal",
        "not literal.is_float and common.bits >= 32",
        "not literal.is_float",
    ),
    # ---- dependences
    Mutant(
        "carried-back-dropped",
        "a later statement and an earlier one of the next iteration do not depend on each other",
        "_pairs",
        "for depth in range(1, common + 1):\n                    yield Dependence(second, first",
        "for depth in range(2, common + 1):\n                    yield Dependence(second, first",
    ),
    Mutant(
        "anti-dependence-dropped",
        "what is read may be overwritten before",
        "_pairs",
        "not (a_writes or b_writes)",
        "not a_writes",
    ),
    Mutant(
        "unknown-difference-is-apart",
        "subscripts whose difference is unknown never meet",
        "_solve",
        "empty |= (a - b).as_int() not in (None, 0)",
        "empty |= (a - b).as_int() != 0",
    ),
    Mutant(
        "shift-ignored",
        "X(i) and X(i + 1) are the same iteration's",
        "_forces",
        "return a.constant == b.constant",
        "return True",
    ),
    Mutant(
        "reversal-allowed",
        "the proof accepts a dependence that a loop turns round, and what stands too early",
        "prove",
        "if (violation := _violation(d, places, dependences, carried))",
        "if (violation := _violation(d, places, dependences, carried)) and not d",
    ),
    Mutant(
        "parallel-reduction",
        "a loop that carries a reduction is made parallel",
        "loop_orders",
        'orders[loop.variable] = "reduction"',
        'orders[loop.variable] = "parallel"',
    ),
    Mutant(
        "privacy-before-write",
        "a temporary is private though what writes it comes later",
        "_private_depth",
        "reversed(writes[: bisect_left(positions, r.position)])",
        "reversed(writes)",
    ),
    Mutant(
        "statement-reads-what-it-wrote",
        "a statement that reads its target elsewhere runs in place",
        "_meets",
        "return not pairs.is_empty()",
        "return False",
    ),
    # ---- padding
    Mutant(
        "padding-need-not-cancel",
        "padding holds 0 whatever is reduced",
        "fills_that_cancel",
        "if _is_constant(_value(program, s.value, r, fill), want):",
        "if True:",
    ),
    Mutant(
        "gathered-extent-padded",
        "an index into the padding is no error",
        "_tensor",
        "if _is_size(e) and d not in gathered",
        "if _is_size(e)",
    ),
)
