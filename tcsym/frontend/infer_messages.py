"""Names and expressions in messages of range and shape inference, as the user wrote them."""

from __future__ import annotations

from tcsym.index import FALSE, Condition, Index, var
from tcsym.index_values import substitute


def plain(name: str) -> str:
    """A name without the prefix that inlining gave it: `fc1.Y` was written `Y`."""
    return name.rpartition(".")[2]


def plain_index(e: Index) -> str:
    """`e` with plain names."""
    return str(substitute(e, {n: var(plain(n)) for n in e.variables() if "." in n}))


def out_of_range(tensor: str, d: int, e: Index, extent: Index, condition: Condition) -> str:
    """An access to `tensor` with subscript `e` in dimension `d` goes outside its extent."""
    where = "" if condition == FALSE else " for these sizes"
    return (
        f"subscript {d} of `{plain(tensor)}` is out of range{where}: {plain_index(e)} must lie in "
        f"0:{plain_index(extent)}"
    )


NARROW = "restrict the range with `where`, or guard the access with `condition ? … : …`"
