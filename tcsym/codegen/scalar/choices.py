# SPDX-License-Identifier: Apache-2.0
"""What a launch chooses by costs: code that computes them for sizes it has not seen lately.

The program of the costs is data, and one loop carries it out: straight code of a product's costs
would take as long to compile as two of its plans, and a call of new sizes waits for it only once.
What was chosen is kept by a hash of the sizes, in a table without locks: a row holds a word and the
word xor the hash, so that halves of two writers do not match (Hyatt, Mann: A lockless transposition
table, 2002). Two sizes of one hash would share a choice, which is as right.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.text import Function
from tcsym.index.straight_line import StraightLine, joined
from tcsym.ir.compiled import SYMBOL
from tcsym.ir.loops import Choice

_NAME = f"{SYMBOL}.choose"
_ROWS_BITS = 6
_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)  # odd: Fibonacci hashing
_MOST_PLACES = 1 << 15


def chosen(context: Context) -> dict[str, str]:
    """The value of each variable that is chosen."""
    kernel, f = context.kernel, context.function
    if not kernel.choices:
        return {}
    costs = joined([c.costs for c in kernel.choices])
    _define(context, costs)
    given = [f"i64 {context.variables[v].text}" for v in costs.variables]
    word = f.result(f"call i64 @{_NAME}({', '.join(given)})")
    found, shift = dict[str, str](), 0
    for c in kernel.choices:
        moved = f.result(f"lshr i64 {word}, {shift}")
        found[c.variable] = f.result(f"and i64 {moved}, {(1 << _bits(c)) - 1}")
        shift += _bits(c)
    assert shift <= 64
    return found


def _bits(c: Choice) -> int:
    return (c.versions - 1).bit_length()


def _define(context: Context, costs: StraightLine) -> None:
    module, kernel = context.module, context.kernel
    n = len(costs.constants)
    constants = ", ".join(f"double {_number(x)}" for x in costs.constants)
    data = {
        "kept": f"global [{1 << _ROWS_BITS} x [2 x i64]] zeroinitializer, align 16",
        "constants": f"constant [{n} x double] [{constants}], align 8",
        "steps": f'constant [{8 * len(costs.steps)} x i8] c"{_rows(costs)}", align 8',
    }
    for name, text in data.items():
        module.declarations[f"{_NAME}.{name}"] = f"@{_NAME}.{name} = internal {text}"
    parameters = ", ".join(f"i64 %s{k}" for k in range(len(costs.variables)))
    _define_kept(Function(module, f"define internal i64 @{_NAME}({parameters}) #1"), parameters)
    head = f"define internal i64 @{_NAME}.new({parameters}) cold #1"
    _define_new(Function(module, head), costs, kernel.choices)


def _define_kept(f: Function, parameters: str) -> None:
    """The choice for these sizes, from the table if it has it."""
    mixed = "0"
    for parameter in filter(None, parameters.split(", ")):
        mixed = f.result(f"xor i64 {mixed}, {parameter.split()[1]}")
        mixed = f.result(f"mul i64 {mixed}, {_MULTIPLIER}")
        high = f.result(f"lshr i64 {mixed}, 29")
        mixed = f.result(f"xor i64 {mixed}, {high}")
    mixed = f.result(f"or i64 {mixed}, {1 << _ROWS_BITS}")  # no row is of no sizes
    place = f.result(f"and i64 {mixed}, {(1 << _ROWS_BITS) - 1}")
    row = f.result(f"getelementptr [2 x i64], ptr @{_NAME}.kept, i64 {place}")
    second = f.result(f"getelementptr i64, ptr {row}, i64 1")
    word = f.result(f"load atomic i64, ptr {row} monotonic, align 8")
    check = f.result(f"load atomic i64, ptr {second} monotonic, align 8")
    key = f.result(f"xor i64 {word}, {check}")
    known = f.result(f"icmp eq i64 {key}, {mixed}")
    f.branch(known, "known", "new", True)
    f.start_block("known")
    f.do(f"ret i64 {word}")
    f.start_block("new")
    found = f.result(f"call i64 @{_NAME}.new({parameters})")
    checked = f.result(f"xor i64 {found}, {mixed}")
    f.do(f"store atomic i64 {found}, ptr {row} monotonic, align 8")
    f.do(f"store atomic i64 {checked}, ptr {second} monotonic, align 8")
    f.do(f"ret i64 {found}")
    f.finish()


def _define_new(f: Function, costs: StraightLine, choices: tuple[Choice, ...]) -> None:
    """Carries out the program of the costs, and takes the least of each choice."""
    n = len(costs.variables)
    values = f.alloca(f"[{n + len(costs.steps)} x double]", 16)
    for k in range(n):
        value = f.result(f"sitofp i64 %s{k} to double")
        place = f.result(f"getelementptr double, ptr {values}, i64 {k}")
        f.do(f"store double {value}, ptr {place}, align 8")
    if costs.steps:
        _define_loop(f, values, n, len(costs.steps))
    word, shift, results = "0", 0, iter(_place(costs, k) for k in costs.results)
    for c in choices:
        least, best = "", "0"
        for k in range(c.versions):
            cost = _loaded(f, values, str(next(results)))
            if k:
                is_less = f.result(f"fcmp olt double {cost}, {least}")
                best = f.result(f"select i1 {is_less}, i64 {k}, i64 {best}")
                cost = f.result(f"select i1 {is_less}, double {cost}, double {least}")
            least = cost
        moved = f.result(f"shl i64 {best}, {shift}")
        word = f.result(f"or i64 {word}, {moved}")
        shift += _bits(c)
    f.do(f"ret i64 {word}")
    f.finish()


def _define_loop(f: Function, values: str, first: int, n: int) -> None:
    before = f.current
    f.jump("step")
    f.start_block("step")
    f.do(f"%k = phi i64 [ 0, %{before} ], [ %next, %stored ]")
    row = f.result(f"getelementptr [4 x i16], ptr @{_NAME}.steps, i64 %k")
    step = f.result(f"load <4 x i16>, ptr {row}, align 8")
    wide = f.result(f"sext <4 x i16> {step} to <4 x i64>")
    operator, *places = (f.result(f"extractelement <4 x i64> {wide}, i64 {k}") for k in range(4))
    a, b, c = (_loaded(f, values, place) for place in places)
    labels = [f"operator{k}" for k in range(len(_OPERATORS))]
    cases = " ".join(f"i64 {k}, label %{label}" for k, label in enumerate(labels))
    f.do(f"switch i64 {operator}, label %{labels[0]} [ {cases} ]")
    found = []
    for label, write in zip(labels, _OPERATORS, strict=True):
        f.start_block(label)
        found.append(f"[ {write(f, a, b, c)}, %{label} ]")
        f.jump("stored")
    f.start_block("stored")
    result = f.result(f"phi double {', '.join(found)}")
    at = f.result(f"add i64 %k, {first}")
    place = f.result(f"getelementptr double, ptr {values}, i64 {at}")
    f.do(f"store double {result}, ptr {place}, align 8")
    f.do("%next = add i64 %k, 1")
    more = f.result(f"icmp slt i64 %next, {n}")
    f.branch(more, "step", "chosen")
    f.start_block("chosen")


def _loaded(f: Function, values: str, place: str) -> str:
    """Of a place: constants are before the first one, from the last one on."""
    is_constant = f.result(f"icmp slt i64 {place}, 0")
    number = f.result(f"xor i64 {place}, -1")
    constant = f.result(f"getelementptr double, ptr @{_NAME}.constants, i64 {number}")
    value = f.result(f"getelementptr double, ptr {values}, i64 {place}")
    at = f.result(f"select i1 {is_constant}, ptr {constant}, ptr {value}")
    return f.result(f"load double, ptr {at}, align 8")


def _rows(costs: StraightLine) -> str:
    """Four numbers of 16 bits a step, as bytes: LLVM reads a text of these in no time."""
    rows = ((operator, *(_place(costs, k) for k in at)) for operator, *at in costs.steps)
    return "".join(f"\\{byte:02X}" for row in rows for byte in struct.pack("<4h", *row))


def _place(costs: StraightLine, k: int) -> int:
    variables, constants = len(costs.variables), len(costs.constants)
    assert k < _MOST_PLACES
    if k < variables:
        return k
    return ~(k - variables) if k < variables + constants else k - constants


def _number(x: float | tuple[float, ...]) -> str:
    assert isinstance(x, float)
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


def _quotient(f: Function, a: str, b: str, _: str) -> str:
    """Rounded down by way of integers: not all processors have an instruction for it."""
    is_zero = f.result(f"fcmp oeq double {b}, 0.0")
    divisor = f.result(f"select i1 {is_zero}, double 1.0, double {b}")
    exact = f.result(f"fdiv double {a}, {divisor}")
    whole = f.result(f"fptosi double {exact} to i64")
    rounded = f.result(f"sitofp i64 {whole} to double")
    is_above = f.result(f"fcmp ogt double {rounded}, {exact}")
    less = f.result(f"fsub double {rounded}, 1.0")
    floor = f.result(f"select i1 {is_above}, double {less}, double {rounded}")
    return f.result(f"select i1 {is_zero}, double 0.0, double {floor}")


def _extremum(compare: str) -> Callable[[Function, str, str, str], str]:
    def write(f: Function, a: str, b: str, _: str) -> str:
        is_first = f.result(f"fcmp {compare} double {a}, {b}")
        return f.result(f"select i1 {is_first}, double {a}, double {b}")

    return write


def _choose(f: Function, a: str, b: str, c: str) -> str:
    holds = f.result(f"fcmp une double {a}, 0.0")
    return f.result(f"select i1 {holds}, double {b}, double {c}")


def _truth(compare: str) -> Callable[[Function, str, str, str], str]:
    def write(f: Function, a: str, _: str, __: str) -> str:
        holds = f.result(f"fcmp {compare} double {a}, 0.0")
        return f.result(f"uitofp i1 {holds} to double")

    return write


_OPERATORS: tuple[Callable[[Function, str, str, str], str], ...] = (
    lambda f, a, b, _: f.result(f"fadd double {a}, {b}"),
    lambda f, a, b, _: f.result(f"fmul double {a}, {b}"),
    _quotient,
    _extremum("olt"),
    _extremum("ogt"),
    _choose,
    _truth("oge"),
    _truth("oeq"),
)
