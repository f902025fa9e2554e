# SPDX-License-Identifier: Apache-2.0
"""numpy's einsum notation -> program text with the same meaning.

`ij,jk` becomes `O(i_i,i_k) +=! x0(i_i,i_j) * x1(i_j,i_k)`: repeated labels in one operand are
diagonals, labels missing from the output are summed. An ellipsis stands for the dimensions that an
operand has left, aligned at the right. Where one operand has size 1 and another has not, it is used
without that dimension (`EinsumSource.squeezed`), which is broadcasting. With an order
(`einsum_order.py`) there is a statement for each of its steps, and `t0`, `t1`, … between them.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from msgspec import Struct

from tcsym.errors import RankError, TCSyntaxError, n_dimensions
from tcsym.frontend.einsum_order import Order, has_choice, order, take
from tcsym.types import DType, promote

NAME = "einsum"


class EinsumSource(Struct, frozen=True):
    """`source` defines `einsum(x0, x1, …) -> (O)`; `squeezed[k]`: axes to drop from operand k."""

    source: str
    squeezed: tuple[tuple[int, ...], ...]


def einsum_source(
    spec: str,
    dtypes: Sequence[DType],
    shapes: Sequence[Sequence[int]] | None = None,
    *,
    optimize: bool = False,
) -> EinsumSource:
    """Program for `numpy.einsum(spec, …)` on operands of `dtypes`.

    `shapes` are needed for an ellipsis, for broadcasting and for `optimize`, by which products of
    several operands are taken in the order with the fewest points. Raises TCSyntaxError for a
    malformed spec and RankError for operands that do not fit it.
    """
    operands, output = _split(spec)
    if len(operands) != len(dtypes):
        raise RankError(f"einsum {spec!r} has {len(operands)} operands; {len(dtypes)} are given")
    terms = [_labels(term, spec) for term in operands]
    if shapes is None and any(_DOTS in t for t in terms):
        raise RankError(f"einsum {spec!r} has an ellipsis: the operands' shapes are needed")
    if shapes is not None:
        _expand(terms, shapes, spec)
    labels = _output_labels(output, terms, spec)
    squeezed: list[tuple[int, ...]] = [()] * len(terms)
    if shapes is not None:
        squeezed = _squeeze(terms, shapes)
    steps: Order = (tuple(range(len(terms))),)
    if optimize and shapes is not None:
        steps = order(terms, labels, _extents_of_all(terms, shapes, squeezed))
    return EinsumSource(_program(terms, labels, dtypes, steps), tuple(squeezed))


def has_orders(spec: str) -> bool:
    """Whether operands of `spec` can be taken in several orders. Raises TCSyntaxError."""
    operands, output = _split(spec)
    terms = [_labels(term, spec) for term in operands]
    return _DOTS in spec or has_choice(terms, _output_labels(output, terms, spec))


_DOTS = "..."


def _split(spec: str) -> tuple[list[str], str | None]:
    compact = "".join(spec.split())
    left, arrow, right = compact.partition("->")
    if "->" in right or ("," in right):
        raise TCSyntaxError(f"einsum {spec!r}: one output after `->` is expected")
    return left.split(","), right if arrow else None


def _labels(term: str, spec: str) -> list[str]:
    """Letters of a term, and `...` for its ellipsis."""
    before, dots, after = term.partition(_DOTS)
    letters = set(string.ascii_letters)
    for c in before + after:
        if c not in letters:
            raise TCSyntaxError(
                f"einsum {spec!r}: unexpected `{c}` in `{term}`, expected a letter",
                hint="labels are the letters a-z and A-Z; `...` may stand once in an operand",
            )
    return [*before, *([_DOTS] if dots else []), *after]


def _expand(terms: list[list[str]], shapes: Sequence[Sequence[int]], spec: str) -> None:
    """Replace each ellipsis by labels `0`, `1`, … counted from the right."""
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        rest = len(shape) - sum(x != _DOTS for x in term)
        if rest < 0 or (rest and _DOTS not in term):
            n = len(term) - (_DOTS in term)
            raise RankError(f"einsum {spec!r}: operand {k} has {n_dimensions(len(shape))}, not {n}")
        if _DOTS in term:
            at = term.index(_DOTS)
            term[at : at + 1] = [str(rest - 1 - d) for d in range(rest)]


def _squeeze(terms: list[list[str]], shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Take the labels of broadcast dimensions out of `terms`; the axes to squeeze, by operand."""
    extents: dict[str, set[int]] = {}
    own = [_extents(term, shape) for term, shape in zip(terms, shapes, strict=True)]
    for sizes in own:
        for x, extent in sizes.items():
            extents.setdefault(x, set()).update(extent)
    squeezed = []
    for term, sizes in zip(terms, own, strict=True):
        drop = {x for x, extent in sizes.items() if extent == {1} and extents[x] != {1}}
        squeezed.append(tuple(d for d, x in enumerate(term) if x in drop))
        term[:] = [x for x in term if x not in drop]
    return squeezed


def _extents(term: list[str], shape: Sequence[int]) -> dict[str, set[int]]:
    extents: dict[str, set[int]] = {}
    for x, extent in zip(term, shape, strict=True):
        extents.setdefault(x, set()).add(extent)
    return extents


def _extents_of_all(
    terms: list[list[str]], shapes: Sequence[Sequence[int]], squeezed: list[tuple[int, ...]]
) -> dict[str, int]:
    extents: dict[str, int] = {}
    for term, shape, axes in zip(terms, shapes, squeezed, strict=True):
        kept = [extent for d, extent in enumerate(shape) if d not in axes]
        for x, extent in zip(term, kept, strict=True):
            extents[x] = max(extent, extents.get(x, 0))
    return extents


def _output_labels(output: str | None, terms: list[list[str]], spec: str) -> list[str]:
    used = [x for term in terms for x in term]
    broadcast = sorted({x for x in used if x.isdigit()}, key=int, reverse=True)
    if output is None:
        return broadcast + sorted(x for x in set(used) if x.isalpha() and used.count(x) == 1)
    labels = _labels(output, spec)
    for x in labels:
        if x != _DOTS and (labels.count(x) > 1 or x not in used):
            why = "appears twice" if labels.count(x) > 1 else "is in no operand"
            raise TCSyntaxError(f"einsum {spec!r}: output label `{x}` {why}")
    if _DOTS not in labels:
        if broadcast:
            raise TCSyntaxError(f"einsum {spec!r}: the output lacks the ellipsis of the operands")
        return labels
    at = labels.index(_DOTS)
    return labels[:at] + broadcast + labels[at + 1 :]


# ---- text


def _program(
    terms: list[list[str]], output: list[str], dtypes: Sequence[DType], steps: Order
) -> str:
    result = result_type(dtypes)
    params = ", ".join(
        f"{dtype}{_list('n', term)} x{k}"
        for k, (term, dtype) in enumerate(zip(terms, dtypes, strict=True))
    )
    body = "".join(f"  {line}\n" for line in _statements(terms, output, dtypes, steps, result))
    return f"def {NAME}({params}) -> (O) {{\n{body}}}\n"


def _statements(
    terms: list[list[str]],
    output: list[str],
    dtypes: Sequence[DType],
    steps: Order,
    result: DType,
) -> list[str]:
    """A statement for each step; what lies between two steps has the type that sums have."""
    wide = result if len(steps) == 1 else result.accumulator
    left = [list(term) for term in terms]
    reads = [
        _cast(f"x{k}{_list('i', term)}", dtype, wide)
        for k, (term, dtype) in enumerate(zip(terms, dtypes, strict=True))
    ]
    lines = []
    for k, step in enumerate(steps):
        factors = [reads[m] for m in sorted(step)]
        reads = [read for m, read in enumerate(reads) if m not in step]
        used, labels = take(left, step, output)
        left.append(labels)
        reads.append(
            f"{'t' + str(k) if left[1:] or wide is not result else 'O'}{_list('i', labels)}"
        )
        op = "+=!" if {x for term in used for x in term} - set(labels) else "="
        lines.append(f"{reads[-1]} {op} {' * '.join(factors)}")
    if wide is not result:
        lines.append(f"O{_list('i', output)} = {_cast(reads[0], wide, result)}")
    return lines


def _cast(read: str, dtype: DType, to: DType) -> str:
    return read if dtype is to else f"{to}({read})"


def _list(prefix: str, labels: list[str]) -> str:
    return f"({','.join(f'{prefix}_{x}' for x in labels)})" if labels else ""


def result_type(dtypes: Sequence[DType]) -> DType:
    """numpy's promotion; of bfloat16 with others, the language's."""
    common = dtypes[0]
    for other in dtypes[1:]:
        common = _numpy_promotion(common, other)
    return common


def _numpy_promotion(a: DType, b: DType) -> DType:
    if DType.BFLOAT16 in (a, b):
        return promote(a, b)
    import numpy as np

    return DType(np.promote_types(a.numpy, b.numpy).name)
