# SPDX-License-Identifier: Apache-2.0
"""Names of one def while its text is read in order, and those of the statement being read.

One namespace (LANGUAGE A8): the functions here say what a name means and which error a misuse is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.builtins import ARITY
from tcsym.errors import NOWHERE, DuplicateError, Span, TCError, TCNameError
from tcsym.frontend import ast
from tcsym.frontend.idioms import name_hint
from tcsym.frontend.program import Expr, Role, SizeParameter, Trap
from tcsym.index.expr import Index, Product
from tcsym.types import DType

if TYPE_CHECKING:
    from tcsym.frontend.resolved import ResolvedProgram


class Unresolved(Exception):
    """Something depends on a statement that failed; its own errors are not worth reporting."""


class Tensor(Struct):
    """`dtype` and `rank` are None until a tensor without a declared type is first assigned."""

    name: str
    role: Role
    dtype: DType | None = None
    rank: int | None = None
    shape: tuple[Index, ...] | None = None
    written: bool = False
    failed: bool = False
    span: Span = NOWHERE
    dimension_spans: tuple[Span, ...] = ()

    @property
    def is_declared(self) -> bool:
        """Its type and shape stand in the header."""
        return self.role != "temporary" and self.shape is not None and self.dtype is not None


class Scope(Struct):
    """Names of a def at one place of its text.

    `loops`: enclosing loop variables, each with its name in the resolved program. `assigned`: every
    name that some statement of the def assigns. `callees`: the defs resolved before this one.
    `size_parameters`: by name, in order.
    """

    functions: frozenset[str] = frozenset()
    callees: Mapping[str, ResolvedProgram | None] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()
    sizes: dict[str, Span] = field(default_factory=dict)
    free_sizes: list[str] = field(default_factory=list)
    size_parameters: dict[str, SizeParameter] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    loops: dict[str, str] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    traps: list[Trap] = field(default_factory=list)

    def kind(self, name: str) -> str | None:
        """What `name` is in words, or None if it is free."""
        if name in self.loops:
            return "loop variable"
        if name in self.sizes:
            return "size"
        if name in self.tensors:
            return "tensor"
        return "built-in function" if name in ARITY else None

    def divides(self, e: Index) -> bool:
        """True if `e` is a product of size parameters, which from now on must not be 0."""
        atom = e.terms[0][0] if len(e.terms) == 1 and not e.constant else None
        factors = atom.factors if isinstance(atom, Product) else (atom,)
        names = [f for f in factors if isinstance(f, str) and f in self.size_parameters]
        if len(names) < len(factors) or e.terms[0][1] < 0:
            return False
        for name in names:
            self.size_parameters[name] = replace(self.size_parameters[name], divides=True)
        return True

    def fresh_name(self, wanted: str, separator: str = ".") -> str:
        """`wanted`, or the first of `wanted.2`, `wanted.3`, … not yet given out."""
        name, n = wanted, 1
        while name in self.fresh:
            n += 1
            name = f"{wanted}{separator}{n}"
        self.fresh.add(name)
        return name


class StatementNames(Struct):
    """Names that live in one statement: index variables by first place in the text, and lets.

    A let is None where its value failed. With `closed` an unknown name is an error instead.
    """

    variables: dict[str, Span] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    lets: dict[str, ast.Expr | None] = field(default_factory=dict)
    values: dict[tuple[str, bool, DType | None], Expr] = field(default_factory=dict)
    closed: bool = False

    def see(self, name: str, span: Span) -> None:
        """Note an occurrence of an index variable."""
        first = self.variables.get(name)
        if first is None or (span.line, span.column) < (first.line, first.column):
            self.variables[name] = span


class Context(Struct, frozen=True):
    """Where an expression stands: `exact` in subscripts (LANGUAGE E4), `exists` in `exists`.

    `wide`: the declared type to which narrower reads and literals are converted here (LANGUAGE F8).
    """

    scope: Scope
    names: StatementNames
    exact: bool = False
    exists: bool = False
    wide: DType | None = None

    def with_exact(self, exact: bool) -> Context:
        """As an operand that keeps its type."""
        if exact is self.exact and self.wide is None:
            return self
        return Context(self.scope, self.names, exact, self.exists)

    @property
    def keeping_types(self) -> Context:
        return self.with_exact(self.exact)


def a_kind(kind: str) -> str:
    """The kind with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def kind_in(c: Context, name: str) -> str | None:
    if name in c.names.lets:
        return "`where` name"
    return c.scope.kind(name) or ("index variable" if name in c.names.variables else None)


def check_new(scope: Scope, name: str, span: Span) -> None:
    """`name` may be introduced for a size, tensor or loop variable."""
    kind = scope.kind(name)
    if kind == "built-in function":
        raise TCNameError(f"`{name}` is a built-in function and cannot be redefined", span=span)
    if kind is not None:
        raise DuplicateError(f"`{name}` is already the name of {a_kind(kind)}", span=span)


def undefined(c: Context, name: str, span: Span) -> TCError:
    """The error for `name(…)` where `name` is nothing that can be read or applied."""
    kind = kind_in(c, name)
    if kind is not None:
        return TCNameError(f"`{name}` is {a_kind(kind)}, not a tensor or function", span=span)
    known = [*c.scope.tensors, *ARITY]
    return TCNameError(
        f"undefined tensor or function `{name}`", span=span, hint=name_hint(name, known)
    )
