# SPDX-License-Identifier: Apache-2.0
"""Index expressions and conditions <-> isl sets and maps: the border behind which isl lives.

isl does what needs proof for all sizes: ranges, dependences, legality, regions. This module only
translates. One `Presburger` is one isl context: objects of two contexts must never meet (isl would
not notice and compute wrong sets).

What isl cannot express stays sound: an atom over sizes only (a product of sizes, a remainder by a
size) becomes an opaque parameter; an atom that mixes in index variables (`M*i`, `i % H`) an
existentially quantified unknown, so that relations over-approximate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import islpy as isl
from msgspec import Struct, field

from tcsym.index.expr import (
    FALSE,
    TRUE,
    Atom,
    Condition,
    Index,
    Mod,
    Product,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    of_atom,
    var,
)
from tcsym.index.fold import Fold
from tcsym.index.quasi_affine import odd_atoms

PARAM, IN, OUT, SET = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set


class Presburger(Struct):
    """Translation for one compilation. `sizes` are the parameters; all are assumed >= 0."""

    sizes: tuple[str, ...]
    context: isl.Context = field(default_factory=isl.Context)
    _opaque: dict[Atom, str] = field(default_factory=dict)

    # ---- spaces

    def parameter_names(self) -> list[str]:
        """isl names: sizes as p0, p1, … (user names may be isl keywords), then opaque atoms."""
        return [f"p{k}" for k in range(len(self.sizes))] + list(self._opaque.values())

    def space(self, name: str | None, n_dims: int) -> isl.Space:
        names = self.parameter_names()
        space = isl.Space.set_alloc(self.context, len(names), n_dims)
        for k, p in enumerate(names):
            space = space.set_dim_name(PARAM, k, p)
        return space if name is None else space.set_tuple_name(SET, name)

    def _register(self, atoms: Iterable[Atom]) -> None:
        for atom in atoms:
            if atom not in self._opaque:
                self._opaque[atom] = f"q{len(self._opaque)}"

    # ---- conditions -> sets

    def size_set(self, condition: Condition = TRUE) -> isl.Set:
        """Sizes (a parameter set) for which `condition` holds; every size is >= 0."""
        return self.set("", (), condition).params()

    def set(self, name: str, variables: Sequence[str], condition: Condition = TRUE) -> isl.Set:
        """{ name[variables] : condition and sizes >= 0 }, over-approximated where not affine."""
        lifted = self._lift(name, variables, (condition,), ())
        return lifted.project(lifted.domain)

    def relation(
        self,
        name: str,
        variables: Sequence[str],
        target: str,
        subscripts: Sequence[Index | None],
        condition: Condition = TRUE,
    ) -> isl.Map:
        """{ name[variables] -> target[subscripts] : condition }; None is any integer."""
        known = [s for s in subscripts if s is not None]
        lifted = self._lift(name, variables, (condition,), known)
        result = isl.Map.from_domain_and_range(
            lifted.domain, isl.Set.universe(self.space(target, len(subscripts)))
        )
        for k, s in enumerate(subscripts):
            if s is not None:
                result = result.intersect(_equates(lifted.pw_aff(s), result, k))
        n = len(variables)
        extra = lifted.domain.dim(SET) - n
        result = result.project_out(IN, n, extra)
        return result.set_tuple_name(IN, name) if name else result

    def _lift(
        self,
        name: str,
        variables: Sequence[str],
        conditions: Sequence[Condition],
        indices: Sequence[Index],
    ) -> _Lifted:
        sizes = frozenset(self.sizes)
        odd = odd_atoms(*conditions, *indices)
        opaque = [a for a in odd if of_atom(a).variables() <= sizes]
        unknown = [a for a in odd if a not in opaque]
        self._register(opaque)
        lifted = _Lifted(self, name, tuple(variables), tuple(unknown))
        lifted.domain = reduce(
            lambda s, c: s.intersect(lifted.condition_set(c)), conditions, lifted.domain
        )
        return lifted

    def pw_aff(self, e: Index, name: str = "", variables: Sequence[str] = ()) -> isl.PwAff:
        """`e` as a function on { name[variables] }; it must be quasi-affine in the variables."""
        lifted = self._lift(name, variables, (), (e,))
        if lifted.unknown:
            raise ValueError(f"not quasi-affine: {e}")
        return lifted.pw_aff(e)

    # ---- isl -> index expressions

    def index_of(self, value: isl.PwAff, variables: Sequence[str] = ()) -> Index:
        """An expression equal to `value` on its domain, as a minimum or maximum where it is one."""
        pieces: list[tuple[isl.Set, isl.Aff]] = []
        value.coalesce().foreach_piece(lambda s, a: pieces.append((s, a)))
        affs = list(dict.fromkeys(self._aff_index(a, variables) for _, a in pieces))
        if len(affs) == 1:
            return affs[0]
        functions = [isl.PwAff.from_aff(a) for _, a in pieces]
        domain = value.domain()
        for fold, build in ((isl.PwAff.min, minimum), (isl.PwAff.max, maximum)):
            candidate = reduce(fold, functions)
            if candidate.intersect_domain(domain).is_equal(value):
                return build(*affs)
        result = self._aff_index(pieces[-1][1], variables)
        for s, a in reversed(pieces[:-1]):
            result = choose(
                self.condition_of(s.gist(domain), variables), self._aff_index(a, variables), result
            )
        return result

    def condition_of(self, s: isl.Set, variables: Sequence[str] = ()) -> Condition:
        """A condition that holds exactly on `s`, over sizes and `variables` (its dimensions)."""
        s = s.coalesce().compute_divs().coalesce()
        if s.is_empty():
            return FALSE
        return any_of(
            all_of(self._constraint(c, variables) for c in b.get_constraints())
            for b in s.get_basic_sets()
        )

    def _constraint(self, c: isl.Constraint, variables: Sequence[str]) -> Condition:
        e = self._aff_index(c.get_aff(), variables)
        return eq(e, 0) if c.is_equality() else ge(e, 0)

    def _aff_index(self, a: isl.Aff, variables: Sequence[str]) -> Index:
        """Integer-valued affine expression with integer divisions."""
        scaled, denominator = self._numerator(a, variables)
        if denominator == 1:
            return scaled
        return floordiv(scaled, denominator)

    def _numerator(self, a: isl.Aff, variables: Sequence[str]) -> tuple[Index, int]:
        d = a.get_denominator_val().to_python()
        total = index(_times(a.get_constant_val(), d))
        for kind, count in ((PARAM, a.dim(PARAM)), (IN, a.dim(IN))):
            for k in range(count):
                c = _times(a.get_coefficient_val(kind, k), d)
                if c:
                    e = (
                        self.parameter(str(a.get_dim_name(PARAM, k)))
                        if kind == PARAM
                        else var(variables[k])
                    )
                    total = total + e * c
        for k in range(a.dim(isl.dim_type.div)):
            c = _times(a.get_coefficient_val(isl.dim_type.div, k), d)
            if c:
                numerator, divisor = self._numerator(a.get_div(k), variables)
                total = total + floordiv(numerator, divisor) * c
        return total, d

    def parameter(self, name: str) -> Index:
        """The size or opaque atom behind an isl parameter."""
        if name.startswith("p"):
            return var(self.sizes[int(name[1:])])
        return of_atom(next(a for a, n in self._opaque.items() if n == name))


def _times(value: isl.Val, n: int) -> int:
    return int(value.mul(isl.Val.int_from_si(value.get_ctx(), n)).to_python())


def _equates(value: isl.PwAff, like: isl.Map, k: int) -> isl.Map:
    """{ x -> y : y[k] == value(x) } in the space of `like`."""
    out = isl.Map.from_pw_aff(value)
    n = like.dim(OUT)
    out = out.insert_dims(OUT, 0, k).add_dims(OUT, n - k - 1)
    name = like.get_tuple_name(OUT)
    return out if name is None else out.set_tuple_name(OUT, name)


class _Lifted(Fold[isl.PwAff, isl.Set]):
    """A domain with one extra dimension for each unknown atom, and translation over it."""

    def __init__(
        self, owner: Presburger, name: str, variables: tuple[str, ...], unknown: tuple[Atom, ...]
    ) -> None:
        self.owner, self.name, self.unknown = owner, name, unknown
        self.n_variables = len(variables)
        self.space = owner.space(name or None, len(variables) + len(unknown))
        self.local = isl.LocalSpace.from_space(self.space)
        self.position: dict[Atom, tuple[isl.dim_type, int]] = {
            s: (PARAM, k) for k, s in enumerate(owner.sizes)
        }
        for k, a in enumerate(owner._opaque):
            self.position[a] = (PARAM, len(owner.sizes) + k)
        for k, v in enumerate((*variables, *unknown)):
            self.position[v] = (SET, k)
        self.domain = self._known_facts()

    def _known_facts(self) -> isl.Set:
        facts = isl.Set.universe(self.space)
        for atom in self.position:
            if atom in self.owner.sizes or _is_product_of(atom, self.owner.sizes):
                facts = facts.intersect(self._variable(atom).nonneg_set())
        for atom in self.position:
            if isinstance(atom, Mod):
                facts = facts.intersect(self._remainder_fact(atom))
        return facts

    def _remainder_fact(self, atom: Mod) -> isl.Set:
        """0 <= x % n < n for n > 0 (x % 0 is 0; a negative n says nothing)."""
        try:
            n = self.pw_aff(atom.divisor)
        except KeyError:
            return isl.Set.universe(self.space)
        x = self._variable(atom)
        usual = x.nonneg_set().intersect(x.lt_set(n)).intersect(n.pos_set())
        return usual.union(n.zero_set().intersect(x.zero_set())).union(n.neg().pos_set())

    def _variable(self, atom: Atom) -> isl.PwAff:
        kind, k = self.position[atom]
        return isl.PwAff.from_aff(isl.Aff.var_on_domain(self.local, kind, k))

    def _constant(self, n: int) -> isl.PwAff:
        context, is_short = self.owner.context, abs(n) < 1 << 62
        read = isl.Val.read_from_str  # of any size
        value = isl.Val.int_from_si(context, n) if is_short else read(context, str(n))
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self.local, value))

    def pw_aff(self, e: Index) -> isl.PwAff:
        return self.index(e)

    def condition_set(self, c: Condition) -> isl.Set:
        return self.condition(c)

    def atom(self, atom: Atom) -> isl.PwAff:
        return self._variable(atom) if atom in self.position else super().atom(atom)

    def variable(self, name: str) -> isl.PwAff:
        raise KeyError(name)

    def total(self, terms: Sequence[tuple[isl.PwAff, int]], constant: int) -> isl.PwAff:
        total = self._constant(constant)
        for value, c in terms:
            total = total.add(value if c == 1 else value.mul(self._constant(c)))
        return total

    def product(self, factors: Sequence[isl.PwAff]) -> isl.PwAff:
        raise KeyError("product")

    def quotient(self, a: isl.PwAff, b: isl.PwAff) -> isl.PwAff:
        return a.div(b).floor()  # by a number, which isl asks for: others are odd (`quasi_affine`)

    def remainder(self, a: isl.PwAff, b: isl.PwAff) -> isl.PwAff:
        raise KeyError("remainder")

    def minimum(self, args: Sequence[isl.PwAff]) -> isl.PwAff:
        return reduce(lambda x, y: x.min(y), args)

    def maximum(self, args: Sequence[isl.PwAff]) -> isl.PwAff:
        return reduce(lambda x, y: x.max(y), args)

    def choose(self, c: isl.Set, a: isl.PwAff, b: isl.PwAff) -> isl.PwAff:
        return a.intersect_domain(c).union_add(b.intersect_domain(c.complement()))

    def nonnegative(self, value: isl.PwAff) -> isl.Set:
        return value.nonneg_set()

    def zero(self, value: isl.PwAff) -> isl.Set:
        return value.zero_set()

    def negation(self, truth: isl.Set) -> isl.Set:
        return truth.complement()

    def every(self, truths: Iterator[isl.Set]) -> isl.Set:
        return reduce(lambda s, x: s.intersect(x), truths, isl.Set.universe(self.space))

    def some(self, truths: Iterator[isl.Set]) -> isl.Set:
        return reduce(lambda s, x: s.union(x), truths, isl.Set.empty(self.space))

    def project(self, s: isl.Set) -> isl.Set:
        s = s.project_out(SET, self.n_variables, len(self.unknown))
        return s.set_tuple_name(self.name) if self.name else s


def _is_product_of(atom: Atom, sizes: Sequence[str]) -> bool:
    return isinstance(atom, Product) and all(f in sizes for f in atom.factors)
