# SPDX-License-Identifier: Apache-2.0
"""Loop IR -> Python text that executes it, for `execute`; threads of a device are generators."""

from __future__ import annotations

from typing import assert_never

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index.expr import (
    All,
    Any_,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
)
from tcsym.ir.device import (
    ROW_BYTES,
    Barrier,
    BeginCopy,
    CommitCopies,
    DeviceNode,
    GridBarrier,
    LoadMatrices,
    MatrixMultiply,
    OnDevice,
    WaitCopies,
    n_held,
)
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
)
from tcsym.ir.packed import DOTS, PACK
from tcsym.ir.text_names import name_formulas
from tcsym.ir.traverse import walk
from tcsym.types import DType

OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


def kernel_lines(kernel: Kernel) -> list[str]:
    formulas, kernel = name_formulas(kernel)  # written out they would be evaluated again and again
    lines = [f"{python_name(name)} = {_index(e)}" for name, e in formulas.items()]
    return [*lines, *_node(kernel.body, kernel, ""), "pass"]


def python_name(v: str) -> str:
    return "v_" + v.replace("$", "_f_").replace(".", "_d_").replace(":", "_c_").replace("#", "_h_")


def _index(e: Index) -> str:
    return "+".join([f"({c})*{_atom(a)}" for a, c in e.terms] + [f"({e.constant})"])


def _atom(a) -> str:
    match a:
        case str():
            return python_name(a)
        case Product(fs):
            return "(" + "*".join(map(_atom, fs)) + ")"
        case FloorDiv(x, y):
            return f"_.div({_index(x)},{_index(y)})"
        case Mod(x, y):
            return f"_.mod({_index(x)},{_index(y)})"
        case Min(args):
            return f"min({','.join(map(_index, args))})"
        case Max(args):
            return f"max({','.join(map(_index, args))})"
        case Choose(c, x, y):
            return f"(({_index(x)}) if {_condition(c)} else ({_index(y)}))"
        case _:
            assert_never(a)


def _condition(c: Condition) -> str:
    match c:
        case NonNegative(i):
            return f"({_index(i)} >= 0)"
        case IsZero(i):
            return f"({_index(i)} == 0)"
        case Not(x):
            return f"(not {_condition(x)})"
        case All(cs):
            return "(" + (" and ".join(map(_condition, cs)) or "True") + ")"
        case Any_(cs):
            return "(" + (" or ".join(map(_condition, cs)) or "False") + ")"
        case _:
            assert_never(c)


def _value(v: Value) -> str:
    match v:
        case Const(x, _):
            return f"float('{x}')" if isinstance(x, float) else str(x)
        case IndexValue(i, _):
            return f"({_index(i)})"
        case Read(b, subs):
            at = ",".join(map(_subscript, subs))
            return f"memory[{b!r}][{at or '()'}{',' * (len(subs) == 1)}]"
        case Cast(x, t):
            return _cast(_value(x), t)
        case Unary(op, x, t):
            return _cast(f"-{_value(x)}", t) if op == "neg" else f"(not {_value(x)})"
        case Binary():
            return _binary(v)
        case Compare(op, a, b):
            return f"_.compare({op!r},{_value(a)},{_value(b)})"
        case Select():
            return _select(v)
        case Call():
            return _call(v)
        case Holds(c):
            return _condition(c)
        case HorizontalReduce() | Shuffle():
            return _of_lanes(v)
        case _:
            assert_never(v)


def _select(v: Select) -> str:
    condition, then, orelse = _value(v.condition), _value(v.then), _value(v.orelse)
    if v.eager:  # what is read must be inside, whatever is chosen
        return f"({orelse},{then})[bool({condition})]"
    return f"({then} if {condition} else {orelse})"


def _of_lanes(v: HorizontalReduce | Shuffle) -> str:
    if isinstance(v, Shuffle):
        return f"(yield 'shuffle',{id(v)},{v.direction!r},{v.lanes},{_value(v.value)})"
    lanes = f"[{_value(v.value)} for {python_name(v.variable)} in range({v.width})]"
    return f"_.reduce({v.op!r},{lanes},{str(v.dtype)!r})"


def _call(v: Call) -> str:
    args = ",".join(map(_value, v.args))
    if v.function == PACK:
        return f"({args},)"
    if v.function in DOTS:
        return _cast(f"_.dot({args})", v.dtype)
    return f"_.call({v.function!r},{str(v.dtype)!r},{args})"


def _subscript(s: Index | Value) -> str:
    return _index(s) if isinstance(s, Index) else _value(s)


def _binary(v: Binary) -> str:
    if v.op in ("and", "or"):
        return f"({_value(v.left)} {v.op} {_value(v.right)})"
    if v.exact and v.op in OPERATORS:
        return f"({_value(v.left)}{OPERATORS[v.op]}{_value(v.right)})"
    text = _combined(v.op, _value(v.left), _value(v.right), v.dtype)
    return _cast(text, DType.FLOAT32) if v.dtype.is_float and v.dtype.bits < 64 else text


def _combined(op: str, a: str, b: str, t: DType) -> str:
    if t is not DType.BOOL and op in OPERATORS:
        return f"({a}{OPERATORS[op]}{b})" if t.is_float else _cast(f"{a}{OPERATORS[op]}{b}", t)
    return f"_.binary({op!r},{a},{b},{str(t)!r})"


def _cast(text: str, t: DType) -> str:
    if t is DType.BOOL or t is DType.FLOAT64:
        return f"{'float' if t.is_float else 'bool'}({text})"
    if t is DType.FLOAT32:
        return f"c_float({text}).value"
    return f"_.{'rounded' if t.is_float else 'integer'}({text},{str(t)!r})"


def _place(buffer: str, subscripts: tuple[Index, ...]) -> str:
    at = ",".join(map(_index, subscripts))
    return f"memory[{buffer!r}][memory[{buffer!r}].checked({at})]"


def _node(n: Node, k: Kernel, pad: str) -> list[str]:
    match n:
        case Store():
            return [pad + _store(n, k)]
        case Update():
            return _update(n, k.buffer(n.buffer).dtype, pad)
        case Verify(Read(b, subs)):  # the element is not touched
            return [f"{pad}memory[{b!r}].checked({','.join(map(_subscript, subs))})"]
        case Verify(v):
            return [f"{pad}{_value(v)}"]
        case Loop():
            return _loop(n, k, pad)
        case Branch(c, a, b):
            out = [f"{pad}if {_condition(c)}:", *_arm(a, k, pad)]
            return out if b is None else [*out, f"{pad}else:", *_arm(b, k, pad)]
        case Block(body):
            return [line for x in body for line in _node(x, k, pad)]
        case Allocate(names, body):
            made = [line for b in names for line in _allocated(b, k, pad)]
            return [*made, *_node(body, k, pad)]
        case TransposeBlock(t, ts, s, ss, rows, columns, size, row, column):
            a, b = ",".join(map(_index, ts)), ",".join(map(_index, ss))
            return [
                f"{pad}_.transpose(memory[{t!r}],[{a}],memory[{s!r}],[{b}],"
                f"{_index(rows)},{_index(columns)},{size},{row},{column})"
            ]
        case DeviceNode():
            return [pad + line for line in _device_node(n)]
        case _:
            assert_never(n)


def _store(n: Store, k: Kernel) -> str:
    match n.value:
        case Read(tensor, place, _, checked, None) if not any(checked):
            to, at = (",".join(map(_subscript, s)) for s in (n.subscripts, place))
            return f"memory[{n.buffer!r}].move(memory[{tensor!r}].copied({at}),{to})"
        case v:
            return (
                f"{_place(n.buffer, n.subscripts)} = {_cast(_value(v), k.buffer(n.buffer).dtype)}"
            )


def _loop(n: Loop, k: Kernel, pad: str) -> list[str]:
    if n.kind == "block":
        return [f"{pad}_.clock.grid += 1", *_grid(n, k, pad)]
    if n.kind == "thread":
        return _threads(n, k, pad)
    if n.value is not None:
        return [
            f"{pad}for {python_name(n.variable)} in [int({_value(n.value)})]:",
            *_arm(n.body, k, pad),
        ]
    steps = f"_.steps({_index(n.lower)},{_index(n.upper)},{n.order!r},{n.variable!r})"
    out = [f"{pad}for {python_name(n.variable)} in {steps}:"]
    if n.at is not None:
        out.append(f"{pad} if {python_name(n.variable)} != {_subscript(n.at)}: continue")
    if n.mask is not None:
        out.append(f"{pad} if {python_name(n.variable)} >= {_index(n.mask)}:")
        out += [*_other_lanes(n, k, pad + "  "), f"{pad}  continue"]
    return out + _arm(n.body, k, pad)


def _arm(n: Node, k: Kernel, pad: str) -> list[str]:
    return _node(n, k, pad + " ") or [pad + " pass"]


def _update(n: Update, t: DType, pad: str) -> list[str]:
    wide = t.is_float and t.bits < 64  # such sums are kept in a wider type as well
    added = _value(n.value) if t.is_float else _cast(_value(n.value), t)
    new = _combined(n.op, "old.sum(at)" if wide else "old[at]", added, t)
    return [
        f"{pad}old = memory[{n.buffer!r}]",
        f"{pad}at = ({''.join(f'{_index(s)},' for s in n.subscripts)})",
        f"{pad}if at not in old: at = old.checked(*at)",
        f"{pad}old[at] = {_cast(f'new := {new}', t) if wide else new}",
        *([f"{pad}old.sums[at] = old[at], new"] if wide else []),
    ]


def _other_lanes(n: Loop, k: Kernel, pad: str) -> list[str]:
    """Generated code stores whole vectors into padded buffers, where masked loads give zeros."""
    stores = [x for x, _ in walk(n.body) if isinstance(x, Store) and k.buffer(x.buffer).padded]
    if n.kind != "vector":
        return []
    return [
        f"{pad}memory[{x.buffer!r}].move(0,{','.join(map(_index, x.subscripts))})" for x in stores
    ]


# ---- devices


def _grid(n: Node, k: Kernel, pad: str) -> list[str]:
    """Block loops, what the threads of a block share, and a function that is each of them."""
    match n:
        case Loop(kind="block"):
            steps = f"_.steps({_index(n.lower)},{_index(n.upper)},'parallel',{n.variable!r})"
            return [f"{pad}for {python_name(n.variable)} in {steps}:", *_grid(n.body, k, pad + " ")]
        case Allocate((b, *others), body) if k.buffer(b).space == "shared":
            rest = Allocate(tuple(others), body) if others else body
            return [*_allocated(b, k, pad), *_grid(rest, k, pad)]
        case _:
            shape = next(_shape(x) for x, _ in walk(n) if isinstance(x, Loop) and _shape(x))
            return [
                f"{pad}def threads(memory, thread, copies):",
                *_arm(n, k, pad),
                f"{pad} yield from ()",
                f"{pad}_.run(threads, memory, {shape})",
            ]


def _shape(n: Node) -> tuple[int, ...]:
    if isinstance(n, Loop) and n.kind == "thread":
        return (n.upper.as_int() or 0, *_shape(n.body))
    return ()


def _threads(n: Node, k: Kernel, pad: str, depth: int = 0) -> list[str]:
    """Loops of one iteration, the thread's."""
    if not (isinstance(n, Loop) and n.kind == "thread"):
        return _node(n, k, pad) or [f"{pad}pass"]
    name = python_name(n.variable)
    mask = [] if n.mask is None else [f"{pad} if {name} >= {_index(n.mask)}: continue"]
    head = f"{pad}for {name} in (thread[{depth}],):"
    return [head, *mask, *_threads(n.body, k, pad + " ", depth + 1)]


def _allocated(b: str, k: Kernel, pad: str) -> list[str]:
    shape = "".join(f"({_index(e)})," for e in k.buffer(b).shape)
    return [f"{pad}memory[{b!r}] = _.allocate(buffers[{b!r}],({shape}))"]


def _device_node(n: OnDevice) -> list[str]:
    match n:
        case Barrier():
            return [f"yield 'barrier',{id(n)}"]
        case GridBarrier():  # the host runs grids one after the other
            return ["pass"]
        case CommitCopies():
            return ["copies.commit()"]
        case WaitCopies(pending):
            return [f"copies.wait({pending})"]
        case BeginCopy(t, ts, s, ss, elements, condition):
            to, at = (f"[{','.join(map(_index, x[:-1]))}{',' * (len(x) > 1)}" for x in (ts, ss))
            return [
                f"for e in range({elements}):",
                f" copies.begin(memory[{t!r}],{to}{_index(ts[-1])}+e],"
                f"memory[{s!r}],{at}{_index(ss[-1])}+e],{_condition(condition)})",
            ]
        case LoadMatrices(t, ts, s):
            at, to = ("".join(f"{_index(x)}," for x in a[:-1]) for a in (n.row, ts))
            width = f"{ROW_BYTES}//buffers[{s!r}].dtype.bytes"
            return [
                f"row = [memory[{s!r}][{at}{_index(n.row[-1])}+e,] for e in range({width})]",
                f"got = yield 'matrices',{id(n)},{1 << len(n.steps)},{n.transposed},row",
                "for e, x in enumerate(got):",
                f" memory[{t!r}][memory[{t!r}].checked({to}{_index(ts[-1])}+e)] = x",
            ]
        case MatrixMultiply():
            left = _held(n.left, n.left_subscripts, n_held("left", n.depth))
            right = _held(n.right, n.right_subscripts, n_held("right", n.depth))
            at = "".join(f"{_index(s)}," for s in n.target_subscripts[:-1])
            return [
                f"sums = yield 'multiply',{id(n)},{n.depth},{left},{right}",
                "for e, x in enumerate(sums):",
                f" at = memory[{n.target!r}].checked({at}{_index(n.target_subscripts[-1])}+e)",
                f" memory[{n.target!r}][at] = _.rounded(memory[{n.target!r}][at]+x,'float32')",
            ]
        case _:
            assert_never(n)


def _held(buffer: str, subscripts: tuple[Index, ...], count: int) -> str:
    at = "".join(f"{_index(s)}," for s in subscripts[:-1])
    return f"[memory[{buffer!r}][{at}{_index(subscripts[-1])}+e,] for e in range({count})]"
