# SPDX-License-Identifier: Apache-2.0
"""Conditions on sizes -> always true, always false, or a check: proofs for all sizes.

Three steps, cheapest first: affine reasoning (`infer_forms`), evaluation at a few sizes (one that
fails refutes "always", one that holds refutes "never"), and only then isl.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl
from msgspec import Struct, field

from tcsym.frontend.infer_forms import is_nonnegative
from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    Index,
    NonNegative,
    any_of,
    condition_variables,
    eq,
    factors_of,
    ge,
    maximum,
    minimum,
    negate,
    var,
)
from tcsym.index.presburger import Presburger
from tcsym.index.values import condition_substitute, evaluate, holds, substitute

Sample = dict[str, int]


class Facts(Struct):
    """What is known about the sizes of one program, and the prover over them.

    `equalities` come from calls whose agreement is checked (LANGUAGE C6): size -> equal expression.
    `positive`: sizes whose being >= 1 is checked.
    """

    sizes: tuple[str, ...]
    equalities: dict[str, Index] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()
    _presburger: Presburger | None = None
    _samples: list[Sample] = field(default_factory=list)

    @property
    def presburger(self) -> Presburger:
        """The isl border of this program, made when first needed."""
        if self._presburger is None:
            self._presburger = Presburger(self.sizes)
        return self._presburger

    # ---- what is assumed

    def assume_equal(self, a: Index, b: Index) -> None:
        """Use a == b in later proofs (its check stands earlier in the program)."""
        difference = substitute(a - b, self.equalities)
        for name in reversed(self.sizes):
            c = difference.coefficient(name)
            value = var(name) - difference * c
            if abs(c) == 1 and name not in value.variables():
                step = {name: value}
                self.equalities = {n: substitute(e, step) for n, e in self.equalities.items()}
                self.equalities[name] = value
                self._samples = []
                return

    def assume_positive(self, e: Index) -> None:
        """Use e >= 1 in later proofs, if it is a size or a product of sizes."""
        if len(e.terms) == 1 and not e.constant and e.terms[0][1] > 0:
            atom = e.terms[0][0]
            factors = factors_of(atom)
            if all(f in self.sizes for f in factors):
                self.positive |= {f for f in factors if isinstance(f, str)}

    def unless_refuted(self, condition: Condition) -> Condition:
        """`condition` for a check that is reported before those of the equalities it relies on."""
        return any_of([condition, *(negate(eq(var(n), e)) for n, e in self.equalities.items())])

    # ---- proofs

    def is_nonnegative(self, e: Index) -> bool:
        """True if e >= 0 is proved for all sizes (`e` over sizes only)."""
        e = substitute(e, self.equalities)
        if is_nonnegative(e, self.positive):
            return True
        if not e.variables() <= frozenset(self.sizes):
            return False
        if all(isinstance(a, str) for a, _ in e.terms):
            return False  # for independent sizes the quick test is complete
        return self.decide(ge(e, 0)) == TRUE

    def decide(self, condition: Condition) -> Condition:
        """TRUE or FALSE if `condition` is so for all sizes, else the condition itself."""
        condition = condition_substitute(condition, self.equalities)
        if condition in (TRUE, FALSE):
            return condition
        if isinstance(condition, NonNegative) and is_nonnegative(condition.index, self.positive):
            return TRUE
        seen = {holds(condition, s) for s in self.samples()}
        if len(seen) == 2:
            return condition
        if True in seen:
            refuted = self.size_set(negate(condition)).is_empty()
            return TRUE if refuted else condition
        return FALSE if self.size_set(condition).is_empty() else condition

    def size_set(self, condition: Condition = TRUE) -> isl.Set:
        """Sizes that satisfy `condition` and what is assumed."""
        p = self.presburger
        result = p.size_set(condition)
        for size in sorted(self.positive & condition_variables(condition)):
            result = result.intersect(p.size_set(ge(var(size), 1)))
        return result

    def simplify(self, sizes: isl.Set) -> Condition:
        """A condition that holds exactly for the size vectors in `sizes`."""
        everything = self.size_set()
        if everything.subtract(sizes).is_empty():
            return TRUE
        if sizes.is_empty():
            return FALSE
        return self.presburger.condition_of(sizes.gist(everything).coalesce())

    def samples(self) -> list[Sample]:
        """Size vectors on which conditions are tried before they are proved."""
        if not self._samples:
            names = [n for n in self.sizes if n not in self.equalities]
            rows = [[k] * len(names) for k in (1, 0, 2, 3, 8)]
            rows += [[2 + k for k in range(len(names))], [20 - k for k in range(len(names))]]
            for k in range(len(names)):
                rows += [[5] * k + [n] + [5] * (len(names) - k - 1) for n in (0, 1, 97)]
                rows += [[1] * k + [6] + [1] * (len(names) - k - 1)]
            self._samples = [self._completed(dict(zip(names, row, strict=True))) for row in rows]
        return [s for s in self._samples if all(s[p] > 0 for p in self.positive)]

    def _completed(self, sample: Sample) -> Sample:
        derived = {n: evaluate(e, sample) for n, e in self.equalities.items()}
        return sample | {n: max(0, v) for n, v in derived.items()}

    # ---- bounds

    def smallest(self, candidates: Sequence[Index]) -> Index:
        """Minimum of `candidates` without those that are provably not needed."""
        return minimum(*self._pruned(candidates, 1))

    def greatest(self, candidates: Sequence[Index]) -> Index:
        return maximum(*self._pruned(candidates, -1))

    def _pruned(self, candidates: Sequence[Index], direction: int) -> list[Index]:
        kept: list[Index] = []
        for x in dict.fromkeys(candidates):
            if any(self.is_nonnegative((x - y) * direction) for y in kept):
                continue
            kept = [y for y in kept if not self.is_nonnegative((y - x) * direction)]
            kept.append(x)
        return kept
