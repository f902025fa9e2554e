# SPDX-License-Identifier: Apache-2.0
"""Instructions that do more than make a value: memory, copies, warps, calls, carries.

Reference: PTX ISA, 9.7.9 (ld, st, cp.async), 9.7.13 (fences, atomics), 9.7.12.2 (call), 9.7.2
(carries).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.ptx import warps
from tests.ptx.memory import READ, WRITE, Space
from tests.ptx.steps import Array, At, Operands, Step, kind_of, several
from tests.ptx.text import Instruction, Refused
from tests.ptx.values import KINDS

if TYPE_CHECKING:
    from tests.ptx.machine import Frame

Make = Callable[[Instruction, Operands, Any], Step]


def effect_of(instruction: Instruction, operands: Operands) -> Step:
    for pattern, make in _EFFECTS.items():
        m = re.fullmatch(pattern, instruction.name)
        if m is not None:
            return make(instruction, operands, m)
    raise Refused("this instruction is not known")


def is_effect(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in _EFFECTS)


# ---- parameters and calls


def _load_parameter(s: Instruction, operands: Operands, m: Any) -> Step:
    """The lower bytes of a word."""
    kind = kind_of(s.name)
    write, name = operands.writer(s.operands[0], kind), s.operands[1].strip("[]")

    def run(f: Frame, at: At) -> None:
        word = f.parameters[name][at]
        write(f, at, word.astype(f"u{np.dtype(kind).itemsize}").view(kind))

    return run


def _store_parameter(s: Instruction, operands: Operands, m: Any) -> Step:
    read, name = operands.reader(s.operands[1], "u8"), s.operands[0].strip("[]")

    def run(f: Frame, at: At) -> None:
        f.parameters.setdefault(name, np.zeros(len(f.lanes), "u8"))[at] = read(f, at)

    return run


def _call(s: Instruction, operands: Operands, m: Any) -> Step:
    result, name, given = s.operands
    (to,), names = several(result.strip("()")), several(given.strip("()"))

    def run(f: Frame, at: At) -> None:
        f.parameters[to] = f.called(name, [f.parameters[x] for x in names], at)

    return run


# ---- memory


def _space(f: Frame, name: str) -> Space:
    return f.blocks.shared if name == "shared" else f.blocks.memory


def _placed(f: Frame, at: At, name: str, address: Array) -> Array:
    """Each block has shared memory of its own."""
    return address + f.blocks.shared_offsets[at] if name == "shared" else address


def _load(s: Instruction, operands: Operands, m: Any) -> Step:
    is_volatile, space, kind = bool(m[1]), m[2], KINDS[m[4]]
    address, size = operands.address(s.operands[1]), np.dtype(kind).itemsize
    writes = [operands.writer(x, kind) for x in several(s.operands[0])]
    n_bytes = size * len(writes)
    if len(writes) != int(m[3] or 1):
        raise Refused("a vector of another length")

    def run(f: Frame, at: At) -> None:
        memory, threads = _space(f, space), f.blocks.ids[at]
        addresses = _placed(f, at, space, address(f, at))
        places = memory.places(addresses, n_bytes, READ)
        if is_volatile:
            for thread, x in zip(threads.tolist(), addresses.tolist()):
                f.blocks.clocks.learn(thread, x)
        else:
            memory.note_reads(f.blocks.clocks, threads, places, n_bytes)
        for k, write in enumerate(writes):
            write(f, at, memory.load(places + k * size, size).view(kind))

    return run


def _store(s: Instruction, operands: Operands, m: Any) -> Step:
    space, kind = m[1], KINDS[m[3]]
    address, size = operands.address(s.operands[0]), np.dtype(kind).itemsize
    bits = f"u{size}"
    reads = [operands.reader(x, bits) for x in several(s.operands[1])]
    n_bytes = size * len(reads)
    if len(reads) != int(m[2] or 1):
        raise Refused("a vector of another length")

    def run(f: Frame, at: At) -> None:
        memory, threads = _space(f, space), f.blocks.ids[at]
        places = memory.places(_placed(f, at, space, address(f, at)), n_bytes, WRITE)
        memory.note_writes(f.blocks.clocks, threads, places, n_bytes)
        for k, read in enumerate(reads):
            memory.store(places + k * size, read(f, at))
        f.blocks.n_changes += 1

    return run


_UPDATES: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, x: old + x,
    "min": min,
    "max": max,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda old, x: x,
}


def _atomic(s: Instruction, operands: Operands, m: Any) -> Step:
    """One thread after the other, in no order that a program may rely on: from the last on."""
    space, update, kind = m[1], m[2], KINDS[m[3]]
    is_reduction = s.name.startswith("red.")
    to, place, *given = ("_", *s.operands) if is_reduction else s.operands
    write, address = operands.writer(to, kind), operands.address(place)
    reads = [operands.reader(x, kind) for x in given]
    if len(reads) != (2 if update == "cas" else 1) or KINDS[m[3]][0] == "f":
        raise Refused("an atomic operation of that form")

    def run(f: Frame, at: At) -> None:
        memory, size = _space(f, space), np.dtype(kind).itemsize
        addresses = _placed(f, at, space, address(f, at))
        places = memory.places(addresses, size, READ | WRITE)
        values = [read(f, at).tolist() for read in reads]
        elements, before = memory.views[size].view(kind), np.zeros(len(places), kind)
        threads = f.blocks.ids[at].tolist()
        for k in reversed(range(len(places))):
            f.blocks.clocks.publish(threads[k], int(addresses[k]))
            where = int(places[k]) // size
            before[k] = old = elements[where]
            if update == "cas":
                new = values[1][k] if int(old) == values[0][k] else int(old)
            else:
                new = _UPDATES[update](int(old), values[0][k])
            elements[where] = np.array(new % (1 << 8 * size), f"u{size}").view(kind)
        write(f, at, before)
        f.blocks.n_changes += 1

    return run


def _fence(s: Instruction, operands: Operands, m: Any) -> Step:
    return lambda f, at: f.blocks.clocks.fence(f.blocks.ids[at])


# ---- asynchronous copies


def _begin_copy(s: Instruction, operands: Operands, m: Any) -> Step:
    to, source = operands.address(s.operands[0]), operands.address(s.operands[1])
    n_bytes = int(s.operands[2])
    if n_bytes not in ((16,) if m[1] == "cg" else (4, 8, 16)):
        raise Refused(f"{n_bytes} bytes")
    count = operands.reader(s.operands[3] if len(s.operands) > 3 else s.operands[2], "u4")

    def run(f: Frame, at: At) -> None:
        counts = count(f, at).astype("i8")
        if (counts > n_bytes).any():
            raise Refused("more bytes to read than to write")
        places = _placed(f, at, "shared", to(f, at))
        f.blocks.copies.begin(f.lanes[at], places, source(f, at), n_bytes, counts)

    return run


def _commit(s: Instruction, operands: Operands, m: Any) -> Step:
    return lambda f, at: f.blocks.copies.commit(f.lanes[at])


def _wait(s: Instruction, operands: Operands, m: Any) -> Step:
    n = int(s.operands[0])
    return lambda f, at: f.blocks.copies.wait(f.lanes[at], n)


# ---- warps


def _by_warps(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1, warps.WARP)


def _shuffle(s: Instruction, operands: Operands, m: Any) -> Step:
    to, a, b, c, members = s.operands
    to, _, got = to.partition("|")
    if members != "-1":
        raise Refused("a shuffle of not all threads of a warp")
    reads = [operands.reader(x, "u4") for x in (a, b, c)]
    write, write_got = operands.writer(to, "u4"), operands.writer(got or "_", "?")

    def run(f: Frame, at: At) -> None:
        values, is_there = warps.shuffled(m[1], *[_by_warps(read(f, at)) for read in reads])
        write(f, at, values.reshape(-1))
        write_got(f, at, is_there.reshape(-1))

    return run


def _load_matrices(s: Instruction, operands: Operands, m: Any) -> Step:
    """Matrix k has its rows where threads 8 k to 8 k + 7 say."""
    writes = [operands.writer(x, "u4") for x in several(s.operands[0])]
    address, transposed = operands.address(s.operands[1]), bool(m[2])
    readers = warps.READERS[transposed]
    if len(writes) != int(m[1]):
        raise Refused("another number of matrices")

    def run(f: Frame, at: At) -> None:
        shared, clocks = f.blocks.shared, f.blocks.clocks
        addresses = _by_warps(_placed(f, at, "shared", address(f, at)))
        threads = _by_warps(f.blocks.ids[at])
        for k, write in enumerate(writes):
            rows = np.ascontiguousarray(addresses[:, 8 * k : 8 * k + 8]).reshape(-1)
            places = shared.places(rows, 16, READ)
            shared.note_reads(
                clocks, threads[:, readers].reshape(-1), np.repeat(places, readers.shape[1]), 16
            )
            words = [shared.load(places + 2 * i, 2) for i in range(8)]
            matrix = np.stack(words, 1).reshape(-1, 8, 8)
            write(f, at, warps.fragments(matrix, transposed).reshape(-1))

    return run


def _multiply(s: Instruction, operands: Operands, m: Any) -> Step:
    depth, kind = int(m[1]), m[2]
    given = [several(x) for x in s.operands]
    if [len(x) for x in given] != [4, 4, 2, 4] or (depth == 8) != (kind == "tf32"):
        raise Refused("a product of that form")
    writes = [operands.writer(x, "f4") for x in given[0]]
    reads = [[operands.reader(x, t) for x in g] for g, t in zip(given[1:], ("u4", "u4", "f4"))]

    def run(f: Frame, at: At) -> None:
        values = [[_by_warps(read(f, at)) for read in group] for group in reads]
        for write, x in zip(writes, warps.product(kind, depth, *values)):
            write(f, at, x.reshape(-1))

    return run


# ---- sums with a carry, of which each thread has one


def _add_with_carry(s: Instruction, operands: Operands, m: Any) -> Step:
    takes, leaves = bool(m[1]), bool(m[2])
    bits = f"u{int(m[3]) // 8}"
    one, two = (operands.reader(x, bits) for x in s.operands[1:])
    write = operands.writer(s.operands[0], bits)

    def run(f: Frame, at: At) -> None:
        a, b = one(f, at), two(f, at)
        total = a + b
        carry = total < a
        if takes:
            before = f.carry[at].astype(bits)
            carry |= (total + before) < total
            total = total + before
        if leaves:
            f.carry[at] = carry
        write(f, at, total)

    return run


# ---- values of several registers


def _move_parts(s: Instruction, operands: Operands, m: Any) -> Step:
    """A value into its parts, or of them, the lowest bits first."""
    to, source = map(several, s.operands)
    bits = int(m[1]) // max(len(to), len(source))
    part, whole = f"u{bits // 8}", f"u{int(m[1]) // 8}"
    if len(to) > 1:
        read, writes = operands.reader(s.operands[1], whole), [operands.writer(x, part) for x in to]

        def split(f: Frame, at: At) -> None:
            value = read(f, at)
            for k, write in enumerate(writes):
                write(f, at, (value >> np.array(bits * k, whole)).astype(part))

        return split
    reads, put = [operands.reader(x, part) for x in source], operands.writer(s.operands[0], whole)

    def join(f: Frame, at: At) -> None:
        parts = [
            read(f, at).astype(whole) << np.array(bits * k, whole) for k, read in enumerate(reads)
        ]
        put(f, at, np.bitwise_or.reduce(parts))

    return join


_TYPE = r"([busf](?:8|16|32|64))"
_EFFECTS: dict[str, Make] = {
    r"ld\.param\.[busf](?:8|16|32|64)": _load_parameter,
    r"st\.param\.b64": _store_parameter,
    r"call\.uni": _call,
    rf"ld\.(volatile\.|relaxed\.gpu\.)?(global|shared)(?:\.nc)?(?:\.v([24]))?\.{_TYPE}": _load,
    rf"st\.(global|shared)(?:\.v([24]))?\.{_TYPE}": _store,
    rf"(?:atom|red)(?:\.relaxed)?(?:\.gpu)?\.(global|shared)\.(\w+)\.{_TYPE}": _atomic,
    r"membar\.gl": _fence,
    r"cp\.async\.(ca|cg)\.shared\.global": _begin_copy,
    r"cp\.async\.commit_group": _commit,
    r"cp\.async\.wait_group": _wait,
    r"shfl\.sync\.(up|down|bfly|idx)\.b32": _shuffle,
    r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16": _load_matrices,
    r"mma\.sync\.aligned\.m16n8k(8|16)\.row\.col\.f32\.(f16|bf16|tf32)\.\2\.f32": _multiply,
    r"mov\.b(32|64)": _move_parts,
    r"add(c)?(\.cc)?\.[us](32|64)": _add_with_carry,
}
