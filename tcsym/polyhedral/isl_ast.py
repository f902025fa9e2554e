# SPDX-License-Identifier: Apache-2.0
"""Proved schedule tree -> loop nest through isl's AST generation, where bounds are not plain.

The tree is handed to isl as a 2d+1 map: places in sequences and values of loops alternate. isl's
expressions become `Index` and `Condition`; an AST loop has the order of the tree loop it comes
from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import islpy as isl
from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    Index,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    index,
    lt,
    maximum,
    minimum,
    mod,
    negate,
    var,
)
from tcsym.index.quasi_affine import is_quasi_affine
from tcsym.ir.loops import Loop, LoopOrder, Node, conditional
from tcsym.polyhedral.isl_schedule import Unsuitable
from tcsym.polyhedral.lower import joined, proper_end, statement_node
from tcsym.polyhedral.relations import Relations
from tcsym.polyhedral.scop import Scop
from tcsym.polyhedral.tree import Leaf, Sequence, Tree, TreeLoop, unique_name


def _node_kind(n: isl.AstNode) -> str:
    return isl.ast_node_type(n.get_type()).name.rstrip("_")


def _expression_kind(e: isl.AstExpr) -> str:
    """`id`, `int`, or the operation."""
    kind = isl.ast_expr_type(e.get_type()).name.rstrip("_")
    return isl.ast_expr_op_type(e.op_get_type()).name.rstrip("_") if kind == "op" else kind


def _children(n: isl.AstNode) -> list[isl.AstNode]:
    found = n.block_get_children()
    return [found.get_at(k) for k in range(found.n_ast_node())]


def tree_to_nest(tree: Tree, scop: Scop, relations: Relations) -> Node:
    """The loop nest of `tree`. Raises Unsuitable for an AST outside our vocabulary, and where isl
    knows less of a domain than it is: its loops would have more points."""
    if not all(is_quasi_affine(s.domain, relations.presburger.sizes) for s in scop.statements):
        raise Unsuitable("isl cannot tell the bounds of some range")
    rows = _rows(tree)
    width = max(len(r) for r in rows.values())
    schedule = reduce(
        lambda a, b: a.union(b), (_map(n, r, width, scop, relations) for n, r in rows.items())
    )
    context = relations.context
    build = isl.AstBuild.from_context(context)
    ids = isl.IdList.alloc(relations.presburger.context, width)
    for k in range(width):
        ids = ids.add(isl.Id.read_from_str(relations.presburger.context, f"t{k}"))
    build = build.set_iterators(ids)
    ast = build.node_from_schedule_map(schedule)
    return _Reader(scop, relations, rows).node(ast, {})


_OPERATIONS: dict[str, Callable[..., Index]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "minus": lambda a: -a,
    "min": minimum,
    "max": maximum,
    "div": floordiv,  # exact
    "fdiv_q": floordiv,
    "pdiv_q": floordiv,  # dividend >= 0
    "pdiv_r": mod,
    "zdiv_r": mod,  # only compared with 0
}
_COMPARISONS: dict[str, Callable[[Index, Index], Condition]] = {
    "eq": eq,
    "le": lambda a, b: ge(b, a),
    "lt": lt,
    "ge": ge,
    "gt": lambda a, b: lt(b, a),
}
Entry = int | TreeLoop
Rows = Mapping[str, tuple[Entry, ...]]


def _rows(tree: Tree) -> Rows:
    """By statement: places and loops from the root, alternating, a place first and last."""
    rows: dict[str, tuple[Entry, ...]] = {}

    def visit(t: Tree, path: tuple[Entry, ...]) -> None:
        match t:
            case Leaf(name, _):
                rows[name] = path if len(path) % 2 else (*path, 0)
            case Sequence(children):
                for k, c in enumerate(children):
                    visit(c, (*path, k))
            case TreeLoop():
                visit(t.body, (*path, t) if len(path) % 2 else (*path, 0, t))

    visit(tree, ())
    return rows


def _map(
    name: str, row: tuple[Entry, ...], width: int, scop: Scop, relations: Relations
) -> isl.UnionMap:
    s = scop.statement(name)
    values = [e.value(name) if isinstance(e, TreeLoop) else index(e) for e in row]
    padded = [*values, *(index(0) for _ in range(width - len(values)))]
    relation = relations.presburger.relation(name, s.iterators, "", padded, s.domain)
    return isl.UnionMap.from_map(relation)


class _Reader(Struct):
    """isl's AST -> loop IR."""

    scop: Scop
    relations: Relations
    rows: Rows
    taken: set[str] = field(default_factory=set)

    def node(self, n: isl.AstNode, values: Mapping[str, Index]) -> Node:
        """`values`: isl's iterators over our loop variables."""
        self.relations.effort.step()
        match _node_kind(n):
            case "block":
                return joined([self.node(x, values) for x in _children(n)])
            case "if":
                return self._branch(n, values)
            case "for":
                return self._loop(n, values)
            case "user":
                return self._statement(n, values)
            case kind:
                raise Unsuitable(f"AST node {kind}")

    def _branch(self, n: isl.AstNode, values: Mapping[str, Index]) -> Node:
        condition = self._condition(n.if_get_cond(), values)
        then = conditional(condition, self.node(n.if_get_then_node(), values))
        if not n.if_has_else_node():
            return then
        other = conditional(negate(condition), self.node(n.if_get_else_node(), values))
        return joined([then, other])

    def _loop(self, n: isl.AstNode, values: Mapping[str, Index]) -> Node:
        name = n.for_get_iterator().get_id().get_name()
        lower = self._index(n.for_get_init(), values)
        if n.for_is_degenerate():
            return self.node(n.for_get_body(), {**values, name: lower})
        if self._index(n.for_get_inc(), values) != index(1):
            raise Unsuitable("a loop with a step")
        loops = self._tree_loops(n, int(name[1:]))
        variable = unique_name(loops[0].variable, self.taken)
        body = self.node(n.for_get_body(), {**values, name: var(variable)})
        upper = self._upper(n.for_get_cond(), values)
        orders = {t.order for t in loops}
        order: LoopOrder = orders.pop() if len(orders) == 1 else "sequential"
        end = proper_end(lower, upper, order, self.scop.sizes)
        return Loop(variable, lower, end, body, order=order)

    def _upper(self, condition: isl.AstExpr, values: Mapping[str, Index]) -> Index:
        kind = _expression_kind(condition)
        bound = self._index(condition.op_get_arg(1), values)
        if kind == "le":
            return bound + 1
        if kind == "lt":
            return bound
        raise Unsuitable(f"loop condition {kind}")

    def _tree_loops(self, n: isl.AstNode, dimension: int) -> list[TreeLoop]:
        """The tree loops at `dimension` of the statements below `n`."""
        found: dict[str, TreeLoop] = {}
        for name in _statements_below(n):
            entry = self.rows[name][dimension]
            if isinstance(entry, TreeLoop):
                found[entry.variable] = entry
        return list(found.values())

    def _statement(self, n: isl.AstNode, values: Mapping[str, Index]) -> Node:
        call = n.user_get_expr()
        s = self.scop.statement(call.op_get_arg(0).get_id().get_name())
        point = {v: self._index(call.op_get_arg(k + 1), values) for k, v in enumerate(s.iterators)}
        return statement_node(replace(s, condition=all_of(())), point)

    # ---- expressions

    def _index(self, e: isl.AstExpr, values: Mapping[str, Index]) -> Index:
        kind = _expression_kind(e)
        if kind == "int":
            return index(int(e.get_val().to_python()))
        if kind == "id":
            name = e.get_id().get_name()
            return values[name] if name in values else self.relations.presburger.parameter(name)
        if kind in ("select", "cond"):
            then, orelse = (self._index(e.op_get_arg(k), values) for k in (1, 2))
            return choose(self._condition(e.op_get_arg(0), values), then, orelse)
        if kind not in _OPERATIONS:
            raise Unsuitable(f"operation {kind}")
        args = [self._index(e.op_get_arg(k), values) for k in range(e.op_get_n_arg())]
        return _OPERATIONS[kind](*args)

    def _condition(self, e: isl.AstExpr, values: Mapping[str, Index]) -> Condition:
        kind = _expression_kind(e)
        if kind in ("and", "and_then"):
            return all_of(self._conditions(e, values))
        if kind in ("or", "or_else"):
            return any_of(self._conditions(e, values))
        if kind == "int":
            return TRUE if e.get_val().to_python() else FALSE
        if kind not in _COMPARISONS:
            raise Unsuitable(f"condition {kind}")
        a, b = (self._index(e.op_get_arg(k), values) for k in range(2))
        return _COMPARISONS[kind](a, b)

    def _conditions(self, e: isl.AstExpr, values: Mapping[str, Index]) -> list[Condition]:
        return [self._condition(e.op_get_arg(k), values) for k in range(e.op_get_n_arg())]


def _statements_below(n: isl.AstNode) -> list[str]:
    """Names of the statements in an AST, without callbacks (an exception in one would crash)."""
    match _node_kind(n):
        case "block":
            return [name for x in _children(n) for name in _statements_below(x)]
        case "if":
            other = _statements_below(n.if_get_else_node()) if n.if_has_else_node() else []
            return [*_statements_below(n.if_get_then_node()), *other]
        case "for":
            return _statements_below(n.for_get_body())
        case "user":
            return [n.user_get_expr().op_get_arg(0).get_id().get_name()]
        case kind:
            raise Unsuitable(f"AST node {kind}")
