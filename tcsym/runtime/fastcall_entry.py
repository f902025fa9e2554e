"""What a fast entry is made for, and the table through which its code finds everything."""

from __future__ import annotations

from tcsym.compiled import Layout
from tcsym.index import Index
from tcsym.records import dataclass
from tcsym.runtime.entering import OPTIONS, TABLE, Library
from tcsym.runtime.fastcall_arrays import Arrays, Memory, NumpyArrays, Wanted
from tcsym.runtime.fastcall_index import SIZE_BOUND, Lines, Value
from tcsym.runtime.fastcall_torch import TorchArrays
from tcsym.runtime.plan import CallPlan

_ARRAYS: dict[Library, type[NumpyArrays] | type[TorchArrays]] = {
    "numpy": NumpyArrays,
    "torch": TorchArrays,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry is made for: a plan and a variant that serves it.

    `pointers`: places of the kernel's arguments among inputs and outputs. `slots`: each of its
    sizes is a slot, or the stride in elements of (argument, dimension). `exact`: it serves
    arguments of these layouts, and no stricter ones.
    """

    plan: CallPlan
    layouts: tuple[Layout, ...]
    pointers: tuple[int, ...]
    slots: tuple[int | tuple[int, int], ...]
    shared_bytes: Index
    private_bytes: Index
    exact: bool = True
    library: Library = "numpy"

    @property
    def free_slots(self) -> tuple[int, ...]:
        """Slots that `sizes=` must give."""
        return tuple(s for s in self.plan.free_slots if self.plan.initial[s] is None)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Slots of known sizes. The table has their values: one code serves all such entries."""
        known = enumerate(self.plan.initial[: len(self.plan.sizes)])
        return tuple(k for k, value in known if value is not None and value < SIZE_BOUND)

    @property
    def table(self) -> dict[str, int]:
        """Place of everything in the table."""
        inputs, outputs = range(len(self.plan.inputs)), range(len(self.plan.outputs))
        names = [
            "slow",  # the function for everything else
            "served",  # calls that the entry did not pass to that
            "launch",  # tcsym_launch (native.ll)
            "kernel",
            "arena",
            "pool",
            "cores",  # a number: from more threads on, none should wait spinning
            "chosen",  # address of the number of threads in force, 0: not known yet
            "results",  # tuple type of several outputs
            "shared",  # bytes of scratch memory, where they are numbers
            "private",
            *_ARRAYS[self.library].fields,
            *(f"input {k}" for k in inputs),  # element types, as the library has them
            *(f"output {k}" for k in outputs),
            *(f"scalar {k}" for k in inputs),  # numpy's scalar types
            *(f"size {k}" for k in self.free_slots),  # names
            *(f"number {k}" for k in self.numbers),  # values of known sizes
            *(f"name {k}" for k in inputs),  # these and the next are tcsym_match's names
            *OPTIONS,
        ]
        return {name: k for k, name in enumerate(names)}


class Body:
    """One entry's function being written: what all its parts share.

    `values`: of the slots, as they become known.
    """

    def __init__(self, entry: Entry) -> None:
        plan = entry.plan
        self.entry, self.plan = entry, plan
        self.out = Lines()
        self.memory = Memory(self.out)
        self.places = entry.table
        self.n_inputs, self.n_outputs = len(plan.inputs), len(plan.outputs)
        ranks = [p.rank for p in plan.inputs] + [len(o.shape) for o in plan.outputs]
        self.most_rank = max(1, *ranks)
        make = _ARRAYS[entry.library]
        self.library: Arrays = make(self.out, self.table, len(ranks), self.most_rank)
        self.values = [None if v is None else Value(str(v), v) for v in plan.initial]
        for slot in entry.numbers:
            self.values[slot] = Value(self.number(f"number {slot}"), SIZE_BOUND)
        self.inputs = [
            Wanted(p.dtype, p.rank, layout, entry.exact, f"input {k}")
            for k, (p, layout) in enumerate(zip(plan.inputs, entry.layouts))
        ]
        self.outputs = [
            Wanted(o.dtype, len(o.shape), layout, entry.exact, f"output {k}", writable=True)
            for k, (o, layout) in enumerate(zip(plan.outputs, entry.layouts[self.n_inputs :]))
        ]

    def table(self, name: str) -> str:
        """The word at a place of the table."""
        return self.memory.load("ptr", f"@{TABLE}", 8 * self.places[name])

    def number(self, name: str) -> str:
        """The integer at a place of the table."""
        return self.out.named(f"ptrtoint ptr {self.table(name)} to i64")

    def table_at(self, name: str) -> str:
        return f"getelementptr inbounds (ptr, ptr @{TABLE}, i64 {self.places[name]})"

    def integer(self, number: str, lowest: int, highest: int) -> str:
        """Value of an object that must be an `int` in a range."""
        bounds = f"i64 {lowest}, i64 {highest}"
        value = self.out.named(f"call i64 @tcsym_integer(ptr {number}, {bounds})")
        self.out.guard(self.out.named(f"icmp sge i64 {value}, {lowest}"))
        return value


def can_be_entered(plan: CallPlan, library: Library) -> bool:
    """True if a fast entry can serve the plan: it has outputs, and a call tells all sizes."""
    known = {s for p in plan.inputs for s in p.slots} | set(plan.free_slots)
    known |= {k for k, v in enumerate(plan.initial) if v is not None}
    # What comes back is of the inputs' library, which numbers do not have.
    tells = library == "numpy" or any(p.rank for p in plan.inputs)
    return tells and bool(plan.outputs) and known.issuperset(range(len(plan.sizes)))
