"""Call plan -> LLVM IR of its switch: a C function that picks a function by the sizes of a call.

It reads the sizes off numpy arrays or torch tensors, by position or name, looks them up in a table
of rows and passes the call on, to the row's function or to a default one. It checks no more than it
needs to read: the functions it calls check everything. Rows lie in groups; sizes are hashed to a
group.

Sizes without a row of their own may have a function by region: the first whose condition holds.

Where rows are tracked, sizes without a row take one, so that calls are counted by sizes. A row that
was only counted is given up after as many calls of others that hash to it: what is called often
stays (the majority vote of Boyer and Moore, by group).
"""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.dispatch.switch_table import (
    COUNTED,
    DEFAULT,
    DEFAULT_CODE,
    FIRST_NOTICE,
    GROUP,
    KEYS_AT,
    LOG_GROUPS,
    MULTIPLIER,
    NAMES,
    NDARRAY,
    NOTICE,
    PARAMETER,
    PLAIN_KEYS,
    REGION_WORDS,
    SYMBOL,
    TABLE,
    TENSOR,
    TOTAL,
    TOTAL_NOTICE,
    VIEW,
    Layout,
)
from tcsym.index import Condition
from tcsym.runtime.entering import OPTIONS
from tcsym.runtime.fastcall_index import DECLARATIONS, SIZE_BOUND, IndexCode, Lines, Value
from tcsym.runtime.fastcall_torch import IMPLEMENTATION_AT, VIEW_BYTES
from tcsym.runtime.numpy_facts import ArrayOffsets
from tcsym.runtime.plan import CallPlan


def layout_of_plan(plan: CallPlan, n_regions: int = 0) -> Layout | None:
    """None if the sizes of a call cannot be read off its arguments, or all are known."""
    where: dict[int, tuple[int, int]] = {}
    for k, p in enumerate(plan.inputs):
        for axis, slot in enumerate(p.slots):
            where.setdefault(slot, (k, axis))
    known = plan.initial[: len(plan.sizes)]
    slots = tuple([k for k, value in enumerate(known) if value is None])
    given = [slot for slot in slots if slot not in where]
    if not slots or any(slot not in plan.free_slots for slot in given):
        return None
    where |= {slot: (-1, k) for k, slot in enumerate(given)}
    places = tuple([where[slot] for slot in slots])
    arguments = sorted({k for k, _ in places if k >= 0})
    ranks = tuple([(k, plan.inputs[k].rank) for k in arguments])
    free = tuple([plan.sizes[slot] for slot in given])
    names = tuple([p.name for p in plan.inputs])
    return Layout(known, slots, places, ranks, names, free, n_regions)


# Calls `%function`: of the row, of the region, of the one that looks at calls, or the default one.
_CALL = f"""default:
  %default_at = getelementptr i64, ptr @{TABLE}, i64 {DEFAULT}
  %default_function = load ptr, ptr %default_at
  %default_code_at = getelementptr i64, ptr @{TABLE}, i64 {DEFAULT_CODE}
  %default_code = load ptr, ptr %default_code_at
  br label %call
call:
  %function = phi ptr [ %default_function, %default ], [ %noticing, %notice ], [ %own, %served ]#
  %code = phi ptr [ %default_code, %default ], [ null, %notice ], [ %own_code, %served ]##
  call void @Py_IncRef(ptr %function)
  %is_ours = icmp ne ptr %code, null
  br i1 %is_ours, label %ours, label %any
ours:
  %direct = call ptr %code(ptr null, ptr %args, i64 %nargs, ptr %kwnames)
  call void @Py_DecRef(ptr %function)
  ret ptr %direct
any:
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %kwnames)
  call void @Py_DecRef(ptr %function)
  ret ptr %result
}}"""


def switch_ir(layout: Layout, names: Sequence[str] = (), contexts: Sequence[Condition] = ()) -> str:
    """Module with the function `SYMBOL`, of the kind METH_FASTCALL | METH_KEYWORDS.

    contexts: of the regions but the last, over `names`, those of all sizes.
    """
    out = Lines()
    sizes = _sizes(out, layout)
    _find_row(out, layout, sizes)
    _miss(out, layout, sizes)
    _find_region(out, layout, sizes, names, contexts)
    body = "\n".join(out.lines)
    region, code = "", ""
    if contexts:
        region, code = (f", [ %region_{what}, %region_ready ]" for what in ("function", "code"))
    call = _CALL.replace("##", code).replace("#", region)
    return f"""@{TABLE} = external global [{layout.words} x i64]
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear() cold
@PyDict_Type = external global i8
declare ptr @PyDict_GetItem(ptr, ptr)
declare i64 @tcsym_integer(ptr, i64, i64)
declare i1 @tcsym_match(ptr, i64, ptr, ptr, i64, ptr)
define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %given = alloca [{len(layout.names) + len(OPTIONS)} x ptr]
  %view = alloca [{VIEW_BYTES} x i8], align 8
  %total_at = getelementptr i64, ptr @{TABLE}, i64 {TOTAL}
  %total = load i64, ptr %total_at
  %more = add i64 %total, 1
  store i64 %more, ptr %total_at
  %total_notice_at = getelementptr i64, ptr @{TABLE}, i64 {TOTAL_NOTICE}
  %total_notice = load i64, ptr %total_notice_at
  %is_looked_at = icmp eq i64 %more, %total_notice
  br i1 %is_looked_at, label %notice, label %usual
usual:
{body}
unseen:
  call void @PyErr_Clear()
  br label %default
{call}
{DECLARATIONS if contexts else ""}"""


def _find_region(
    out: Lines,
    layout: Layout,
    sizes: list[str],
    names: Sequence[str],
    contexts: Sequence[Condition],
) -> None:
    """The function for sizes that no row has one for; the default one where the region has none."""
    out.line("by_region:")
    if not contexts:
        out.line("  br label %default")
        return
    values = {n: Value(str(v), v) for n, v in zip(names, layout.known) if v is not None}
    for slot, size in zip(layout.slots, sizes):
        out.guard(out.named(f"icmp ult i64 {size}, {SIZE_BOUND}"), "default")
        values[names[slot]] = Value(size, SIZE_BOUND)
    code = IndexCode(out, values)
    for k, context in enumerate(contexts):
        out.line(f"  br i1 {code.condition(context)}, label %region{k}, label %beyond{k}")
        out.line(f"region{k}:\n  br label %region\nbeyond{k}:")
    n = len(contexts)
    out.line(f"  br label %region{n}\nregion{n}:\n  br label %region\nslow:\n  br label %default")
    numbers = ", ".join(f"[ {REGION_WORDS * k}, %region{k} ]" for k in range(n + 1))
    out.line(f"region:\n  %region_word = phi i64 {numbers}")
    start = out.named(f"getelementptr i64, ptr @{TABLE}, i64 {layout.regions_at}")
    out.line(f"  %region_at = getelementptr i64, ptr {start}, i64 %region_word")
    out.line("  %region_function = load ptr, ptr %region_at")
    out.guard(out.named("icmp ne ptr %region_function, null"), "default")
    out.line("  br label %region_ready\nregion_ready:")
    out.line("  %region_code_at = getelementptr i64, ptr %region_at, i64 1")
    out.line("  %region_code = load ptr, ptr %region_code_at\n  br label %call")


def _sizes(out: Lines, layout: Layout) -> list[str]:
    last = max((k for k, _ in layout.ranks), default=-1)
    enough = "false" if layout.free else out.named(f"icmp sgt i64 %nargs, {last}")
    out.line(f"  br i1 {enough}, label %ready, label %match\nmatch:")
    out.guard(out.named("icmp ne ptr %kwnames, null"), "default")
    names = f"getelementptr inbounds (i64, ptr @{TABLE}, i64 {NAMES})"
    arguments = f"ptr %args, i64 %nargs, ptr %kwnames, ptr {names}, i64 {len(layout.names)}"
    out.guard(out.named(f"call i1 @tcsym_match({arguments}, ptr %given)"), "default")
    out.line("  br label %matched\nmatched:\n  br label %ready\nready:")
    out.line("  %arguments = phi ptr [ %args, %usual ], [ %given, %matched ]")
    arrays = {k: _load(out, "ptr", "%arguments", 8 * k) for k, _ in layout.ranks}
    dimensions = {k: _dimensions(out, arrays[k], rank) for k, rank in layout.ranks}
    free = _free_sizes(out, layout)
    return [
        free[axis] if k < 0 else _load(out, "i64", dimensions[k], 8 * axis)
        for k, axis in layout.places
    ]


def _free_sizes(out: Lines, layout: Layout) -> list[str]:
    """Sizes that a `dict` gives."""
    if not layout.free:
        return []
    at = len(layout.names) + OPTIONS.index("sizes")
    given = _load(out, "ptr", "%given", 8 * at)
    out.guard(out.named(f"icmp ne ptr {given}, null"), "default")
    kind = _load(out, "ptr", given, ArrayOffsets.type)
    out.guard(out.named(f"icmp eq ptr {kind}, @PyDict_Type"), "default")
    found = []
    for k in range(len(layout.free)):
        name = _word(out, NAMES + len(layout.names) + len(OPTIONS) + k)
        number = out.named(f"call ptr @PyDict_GetItem(ptr {given}, ptr {name})")
        out.guard(out.named(f"icmp ne ptr {number}, null"), "default")
        integer = f"call i64 @tcsym_integer(ptr {number}, i64 0, i64 {SIZE_BOUND - 1})"
        found.append(out.named(integer))
        out.guard(out.named(f"icmp sge i64 {found[-1]}, 0"), "default")
    return found


def _dimensions(out: Lines, array: str, rank: int) -> str:
    """Pointer to the extents of a numpy array or a torch tensor of that rank."""
    offsets = ArrayOffsets
    kind = _load(out, "ptr", array, offsets.type)
    is_array = out.named(f"icmp eq ptr {kind}, {_word(out, NDARRAY)}")
    array_label, other, known = (out.label(name) for name in ("array", "other", "known"))
    out.line(f"  br i1 {is_array}, label %{array_label}, label %{other}\n{array_label}:")
    found = _load(out, "i32", array, offsets.rank)
    out.guard(out.named(f"icmp eq i32 {found}, {rank}"), "default")
    first = _load(out, "ptr", array, offsets.dimensions)
    of_array = out.label("of_array")
    out.line(f"  br label %{of_array}\n{of_array}:\n  br label %{known}\n{other}:")
    second = _tensor_dimensions(out, array, kind, rank)
    of_tensor = out.label("of_tensor")
    out.line(f"  br label %{of_tensor}\n{of_tensor}:\n  br label %{known}\n{known}:")
    return out.named(f"phi ptr [ {first}, %{of_array} ], [ {second}, %{of_tensor} ]")


def _tensor_dimensions(out: Lines, array: str, kind: str, rank: int) -> str:
    """Of a plain tensor, as `fastcall_torch` reads it. Its words are 0 before torch is known."""
    is_tensor, is_parameter = (
        out.named(f"icmp eq ptr {kind}, {_word(out, word)}") for word in (TENSOR, PARAMETER)
    )
    out.guard(out.named(f"or i1 {is_tensor}, {is_parameter}"), "default")
    implementation = _load(out, "ptr", array, IMPLEMENTATION_AT)
    offset = out.named(f"ptrtoint ptr {_word(out, KEYS_AT)} to i64")
    keys_at = out.named(f"getelementptr i8, ptr {implementation}, i64 {offset}")
    keys = out.named(f"load ptr, ptr {keys_at}")
    out.guard(out.named(f"icmp eq ptr {keys}, {_word(out, PLAIN_KEYS)}"), "default")
    failed = out.named(f"call i32 {_word(out, VIEW)}(ptr {array}, ptr %view)")
    out.guard(out.named(f"icmp eq i32 {failed}, 0"), "unseen")
    found = _load(out, "i32", "%view", 16)
    out.guard(out.named(f"icmp eq i32 {found}, {rank}"), "default")
    return _load(out, "ptr", "%view", 24)


def _word(out: Lines, word: int) -> str:
    return _load(out, "ptr", f"@{TABLE}", 8 * word)


def _find_row(out: Lines, layout: Layout, sizes: list[str]) -> None:
    h = "0"
    for size in sizes:
        mixed = out.named(f"xor i64 {h}, {size}")
        h = out.named(f"mul i64 {mixed}, {MULTIPLIER - (1 << 64)}")
    group = out.named(f"lshr i64 {h}, {64 - LOG_GROUPS}")
    words = out.named(f"mul i64 {group}, {GROUP * layout.row_words}")
    start = out.named(f"getelementptr i64, ptr @{TABLE}, i64 {layout.rows_at}")
    out.line(f"  %group = getelementptr i64, ptr {start}, i64 {words}")
    out.line(f"  %hash = add i64 {h}, 0")
    out.line("  br label %row0")
    n = len(sizes)
    for k in range(GROUP):
        out.line(f"row{k}:")
        out.line(f"  %at{k} = getelementptr i64, ptr %group, i64 {k * layout.row_words}")
        following = f"row{k + 1}" if k + 1 < GROUP else "miss"
        for d, size in enumerate(sizes):
            word = _load(out, "i64", f"%at{k}", 8 * d)
            out.guard(out.named(f"icmp eq i64 {word}, {size}"), following)
        function = _load(out, "i64", f"%at{k}", 8 * n)
        used = out.named(f"icmp ne i64 {function}, 0")
        out.line(f"  br i1 {used}, label %hit{k}, label %{following}")
        out.line(f"hit{k}:\n  br label %hit")
    rows = ", ".join(f"[ %at{k}, %hit{k} ]" for k in range(GROUP))
    out.line(f"hit:\n  %row = phi ptr {rows}")
    count = _load(out, "i64", "%row", 8 * (n + 1))
    more = out.named(f"add i64 {count}, 1")
    _store(out, more, "%row", 8 * (n + 1))
    trigger = _load(out, "i64", "%row", 8 * (n + 2))
    due = out.named(f"icmp eq i64 {more}, {trigger}")
    out.line(f"  br i1 {due}, label %notice, label %plain\nnotice:")
    out.line(f"  %notice_at = getelementptr i64, ptr @{TABLE}, i64 {NOTICE}")
    out.line("  %noticing = load ptr, ptr %notice_at\n  br label %call\nplain:")
    out.line(f"  %own_at = getelementptr i64, ptr %row, i64 {n}")
    out.line("  %own_word = load i64, ptr %own_at")
    out.line(f"  %counted = icmp eq i64 %own_word, {COUNTED}")
    out.line("  br i1 %counted, label %by_region, label %served\nserved:")
    out.line("  %own = inttoptr i64 %own_word to ptr")
    out.line(f"  %code_at = getelementptr i64, ptr %row, i64 {n + 3}")
    out.line("  %own_code = load ptr, ptr %code_at\n  br label %call")


def _miss(out: Lines, layout: Layout, sizes: list[str]) -> None:
    """Takes a row for the sizes if rows are tracked and one is free or outvoted."""
    n = len(sizes)
    out.line("miss:")
    first_at = out.named(f"getelementptr i64, ptr @{TABLE}, i64 {FIRST_NOTICE}")
    first = out.named(f"load i64, ptr {first_at}")
    out.guard(out.named(f"icmp ne i64 {first}, 0"), "by_region")
    low = out.named(f"lshr i64 %hash, {64 - LOG_GROUPS - 2}")
    chosen = out.named(f"and i64 {low}, {GROUP - 1}")
    words = out.named(f"mul i64 {chosen}, {layout.row_words}")
    row = out.named(f"getelementptr i64, ptr %group, i64 {words}")
    function = _load(out, "i64", row, 8 * n)
    out.guard(out.named(f"icmp ule i64 {function}, {COUNTED}"), "by_region")
    count = _load(out, "i64", row, 8 * (n + 1))
    less = out.named(f"sub i64 {count}, 1")
    _store(out, less, row, 8 * (n + 1))
    empty = out.named(f"icmp eq i64 {function}, 0")
    outvoted = out.named(f"icmp slt i64 {less}, 0")
    out.guard(out.named(f"or i1 {empty}, {outvoted}"), "by_region")
    for d, size in enumerate(sizes):
        _store(out, size, row, 8 * d)
    for k, value in enumerate((str(COUNTED), "1", first, "0")):
        _store(out, value, row, 8 * (n + k))
    out.line("  br label %by_region")


def _load(out: Lines, kind: str, base: str, offset: int) -> str:
    at = out.named(f"getelementptr i8, ptr {base}, i64 {offset}")
    return out.named(f"load {kind}, ptr {at}")


def _store(out: Lines, value: str, base: str, offset: int) -> None:
    at = out.named(f"getelementptr i8, ptr {base}, i64 {offset}")
    out.line(f"  store i64 {value}, ptr {at}")
