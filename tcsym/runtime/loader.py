# SPDX-License-Identifier: Apache-2.0
"""ELF relocatable objects -> executable memory: a linker for the code of this machine.

Sections are laid out in three runs of pages (code, constants, data), relocated in a private copy,
copied into fresh memory and then protected: code is never writable, data never executable. Calls
out of reach go through jump stubs behind the code; addresses of external symbols lie in a table
behind the constants. Unwinding tables are dropped. References: System V ABI, AMD64 supplement, 4.4;
ELF for the Arm 64-bit Architecture, 5.7.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from tcsym.ir.archive import members
from tcsym.process.system import processors
from tcsym.runtime.memory import EXECUTE, READ, WRITE, Memory

PAGE = 4096  # of an address in instructions
PROTECTED = os.sysconf("SC_PAGE_SIZE")  # bytes that have a protection of their own
_ALLOCATED, _WRITABLE, _EXECUTABLE, _THREAD_LOCAL = 2, 1, 4, 0x400
_SYMBOL_TABLE, _RELOCATIONS_WITH_ADDEND, _NO_BITS, _UNWIND = 2, 4, 8, 0x70000001
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_MACHINES = {"x86_64": 62, "aarch64": 183}  # in ELF's header
_STUBS = {  # each followed by the address
    "x86_64": b"\xff\x25\x00\x00\x00\x00",  # jmp *(rip+0)
    "aarch64": b"\x50\x00\x00\x58\x00\x02\x1f\xd6",  # ldr x16, 8; br x16
}
_STUB_BYTES = 16

# Relocation type: (format, what is addressed, what is subtracted). S: symbol, L: symbol or its jump
# stub, G: its slot in the address table; P: the place, T: the address table. A format is struct's,
# or a field of an instruction: `page`, of so many pages from that of the place; `jump`, of so many
# instructions; or a number, of places in a page in units of so many bytes.
_RELOCATIONS: dict[int, tuple[str | int, str, str]] = {
    1: ("<Q", "S", ""),  # R_X86_64_64
    2: ("<i", "S", "P"),  # PC32
    4: ("<i", "L", "P"),  # PLT32
    9: ("<i", "G", "P"),  # GOTPCREL
    10: ("<I", "S", ""),  # 32
    11: ("<i", "S", ""),  # 32S
    24: ("<q", "S", "P"),  # PC64
    25: ("<q", "S", "T"),  # GOTOFF64
    26: ("<i", "S", "P"),  # GOTPC32 (its symbol is the table)
    27: ("<q", "G", "T"),  # GOT64
    29: ("<q", "S", "P"),  # GOTPC64
    31: ("<q", "L", "T"),  # PLTOFF64
    41: ("<i", "G", "P"),  # GOTPCRELX
    42: ("<i", "G", "P"),  # REX_GOTPCRELX
    257: ("<Q", "S", ""),  # R_AARCH64_ABS64
    260: ("<q", "S", "P"),  # PREL64
    261: ("<i", "S", "P"),  # PREL32
    275: ("page", "S", ""),  # ADR_PREL_PG_HI21
    277: (1, "S", ""),  # ADD_ABS_LO12_NC
    278: (1, "S", ""),  # LDST8_ABS_LO12_NC
    282: ("jump", "L", "P"),  # JUMP26
    283: ("jump", "L", "P"),  # CALL26
    284: (2, "S", ""),  # LDST16_ABS_LO12_NC
    285: (4, "S", ""),  # LDST32_ABS_LO12_NC
    286: (8, "S", ""),  # LDST64_ABS_LO12_NC
    299: (16, "S", ""),  # LDST128_ABS_LO12_NC
    311: ("page", "G", ""),  # ADR_GOT_PAGE
    312: (8, "G", ""),  # LD64_GOT_LO12_NC
}
_MOST_BYTES = 2**31  # that relative addresses reach
_LOW_ADDRESS_TYPES = (10, 11)  # absolute 32-bit addresses: the image must lie below 2 GiB
_TABLE_SYMBOL = "_GLOBAL_OFFSET_TABLE_"


class LoadError(ValueError):
    """The object is damaged, or uses what this loader does not know."""


class Image:
    """Loaded code: addresses of its global symbols. The pages are freed with the object."""

    def __init__(self, memories: tuple[Memory, ...], symbols: dict[str, int]) -> None:
        self._memories = memories
        self._symbols = symbols

    def address(self, symbol: str) -> int:
        try:
            return self._symbols[symbol]
        except KeyError:
            raise LoadError(f"the object does not define `{symbol}`") from None


# These have their constructors written out: importing what makes them takes two milliseconds.


class _Section:
    __slots__ = ("alignment", "flags", "info", "link", "offset", "size", "type")

    def __init__(self, header: tuple[int, ...]) -> None:
        _, self.type, self.flags, _, self.offset, self.size = header[:6]
        self.link, self.info, self.alignment, _ = header[6:]


class _Symbol:
    __slots__ = ("binding", "name", "section", "value")

    def __init__(self, name: str, binding: int, section: int, value: int) -> None:
        self.name, self.section, self.value = name, section, value
        self.binding = binding  # 0: local


class _Relocation:
    __slots__ = ("addend", "offset", "section", "symbol", "type")

    def __init__(self, section: int, offset: int, symbol: int, kind: int, addend: int) -> None:
        self.section, self.offset, self.symbol = section, offset, symbol
        self.type, self.addend = kind, addend


class _Layout:
    """Where everything goes, relative to the image's start."""

    def __init__(self) -> None:
        self.sections: dict[int, int] = {}
        self.stubs: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        self.table = 0
        self.constants = 0  # end of the code pages
        self.data = 0  # end of the constant pages
        self.end = 0


def load_archive(code: bytes, resolve: Callable[[str], int]) -> Image:
    """Links an object, or the objects of an archive, each to the ones before it."""
    memories: list[Memory] = []
    symbols: dict[str, int] = {}

    def known(name: str) -> int:
        return symbols[name] if name in symbols else resolve(name)

    try:
        for content in members(code):
            image = load_object(content, known)
            memories += image._memories
            symbols |= image._symbols
    except ValueError as e:
        raise e if isinstance(e, LoadError) else LoadError(str(e)) from None
    return Image(tuple(memories), symbols)


def load_object(object_code: bytes, resolve: Callable[[str], int]) -> Image:
    """Links `object_code` into memory. `resolve` gives the address of an external symbol."""
    sections, symbols, relocations, layout = _parsed(object_code)
    low = any(r.type in _LOW_ADDRESS_TYPES for r in relocations)
    memory = Memory(layout.end, low=low)
    values = _symbol_values(symbols, relocations, layout, memory.address, resolve)
    image = _copy_sections(object_code, sections, layout)
    for symbol, at in layout.stubs.items():
        stub = _STUBS[processors()] + struct.pack("<Q", values[symbol])
        image[at : at + len(stub)] = stub
    for symbol, at in layout.slots.items():
        struct.pack_into("<Q", image, at, values[symbol])
    for r in relocations:
        _relocate(image, r, layout, memory.address, values)
    memory.write(image)
    memory.protect(0, layout.constants, READ | EXECUTE)
    memory.protect(layout.constants, layout.data, READ)
    memory.protect(layout.data, layout.end, READ | WRITE)
    return Image((memory,), {s.name: values[k] for k, s in _defined(symbols) if k in values})


def defined_names(code: bytes) -> frozenset[str]:
    """Of what an object or an archive would define, without loading it. LoadError if damaged."""
    try:
        objects = [_parsed(content) for content in members(code)]
    except ValueError as e:
        raise e if isinstance(e, LoadError) else LoadError(str(e)) from None
    return frozenset(s.name for _, symbols, *_ in objects for _, s in _defined(symbols))


def _defined(symbols: list[_Symbol]) -> Iterator[tuple[int, _Symbol]]:
    return ((k, s) for k, s in enumerate(symbols) if s.binding and s.section != _UNDEFINED)


_Parsed = tuple[list[_Section], list[_Symbol], list[_Relocation], _Layout]


def _parsed(code: bytes) -> _Parsed:
    try:
        sections = _read_sections(code)
        symbols = _read_symbols(code, sections)
        relocations = list(_read_relocations(code, sections))
        layout = _lay_out(sections, symbols, relocations)
    except LoadError:
        raise
    except (struct.error, LookupError, ValueError, OverflowError) as e:
        raise LoadError(f"damaged object code: {e}") from None
    _require_in_sections(sections, symbols, relocations, layout)
    return sections, symbols, relocations, layout


def _require_in_sections(
    sections: list[_Section],
    symbols: list[_Symbol],
    relocations: list[_Relocation],
    layout: _Layout,
) -> None:
    """Nothing lies beside its section, and all of them in what one image can address."""
    if layout.end >= _MOST_BYTES:
        raise LoadError("damaged object code: its sections are too large")
    if any(s.section in layout.sections and s.value > sections[s.section].size for s in symbols):
        raise LoadError("damaged object code: a symbol lies beside its section")
    if any(r.offset >= sections[r.section].size for r in relocations):
        raise LoadError("damaged object code: a relocation lies beside its section")


def _read_sections(code: bytes) -> list[_Section]:
    machine = _MACHINES.get(processors(), 0)
    if code[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", code, 16) != (1, machine):
        raise LoadError(f"not a relocatable object for {processors()}")
    (start,) = struct.unpack_from("<Q", code, 0x28)
    entry_size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [
        _Section(struct.unpack_from("<IIQQQQIIQQ", code, start + k * entry_size))
        for k in range(count)
    ]
    if any(s.type != _NO_BITS and s.offset + s.size > len(code) for s in sections):
        raise LoadError("damaged object code: a section ends behind the file")
    if any(s.flags & _THREAD_LOCAL for s in sections):
        raise LoadError("thread-local data is not supported")
    return sections


def _read_symbols(code: bytes, sections: list[_Section]) -> list[_Symbol]:
    table = next((s for s in sections if s.type == _SYMBOL_TABLE), None)
    if table is None:
        return []
    names = sections[table.link]
    found = []
    for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", _bytes(code, table)):
        if section == _COMMON:
            raise LoadError("common symbols are not supported")
        start = names.offset + name
        text = code[start : code.index(b"\0", start)].decode() if name else ""
        found.append(_Symbol(text, info >> 4, section, value))
    return found


def _read_relocations(code: bytes, sections: list[_Section]) -> Iterator[_Relocation]:
    for s in sections:
        if s.type == _RELOCATIONS_WITH_ADDEND and _is_kept(sections[s.info]):
            for offset, info, addend in struct.iter_unpack("<QQq", _bytes(code, s)):
                kind = info & 0xFFFFFFFF
                if kind not in _RELOCATIONS:
                    raise LoadError(f"relocation type {kind} is not supported")
                yield _Relocation(s.info, offset, info >> 32, kind, addend)


def _bytes(code: bytes, section: _Section) -> bytes:
    return code[section.offset : section.offset + section.size]


def _is_kept(section: _Section) -> bool:
    return bool(section.flags & _ALLOCATED) and section.type != _UNWIND


def _lay_out(
    sections: list[_Section], symbols: list[_Symbol], relocations: list[_Relocation]
) -> _Layout:
    layout = _Layout()
    far, addressed = (
        dict.fromkeys(r.symbol for r in relocations if _RELOCATIONS[r.type][1] == what)
        for what in "LG"
    )
    at = _place(sections, layout, 0, lambda f: bool(f & _EXECUTABLE))
    for k, symbol in enumerate(s for s in far if symbols[s].section == _UNDEFINED):
        layout.stubs[symbol] = _round_up(at, 16) + k * _STUB_BYTES
    at = _round_up(at, 16) + len(layout.stubs) * _STUB_BYTES
    layout.constants = _round_up(at, PROTECTED)
    at = _place(sections, layout, layout.constants, lambda f: not f & (_EXECUTABLE | _WRITABLE))
    layout.table = _round_up(at, 8)
    for k, symbol in enumerate(addressed):
        layout.slots[symbol] = layout.table + 8 * k
    layout.data = _round_up(layout.table + 8 * len(layout.slots), PROTECTED)
    at = _place(
        sections, layout, layout.data, lambda f: bool(f & _WRITABLE) and not f & _EXECUTABLE
    )
    layout.end = max(PROTECTED, _round_up(at, PROTECTED))
    return layout


def _place(
    sections: list[_Section], layout: _Layout, at: int, belongs: Callable[[int], bool]
) -> int:
    for k, s in enumerate(sections):
        if _is_kept(s) and belongs(s.flags):
            at = _round_up(at, max(1, s.alignment))
            layout.sections[k] = at
            at += s.size
    return at


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _symbol_values(
    symbols: list[_Symbol],
    relocations: list[_Relocation],
    layout: _Layout,
    base: int,
    resolve: Callable[[str], int],
) -> dict[int, int]:
    """Address of every defined symbol and of every external one that is used."""
    used = {r.symbol for r in relocations}
    values: dict[int, int] = {}
    for k, s in enumerate(symbols):
        if s.section == _ABSOLUTE:
            values[k] = s.value
        elif s.section in layout.sections:
            values[k] = base + layout.sections[s.section] + s.value
        elif k in used and s.name == _TABLE_SYMBOL:
            values[k] = base + layout.table
        elif k in used and s.section == _UNDEFINED:
            values[k] = resolve(s.name)
    return values


def _copy_sections(code: bytes, sections: list[_Section], layout: _Layout) -> bytearray:
    image = bytearray(layout.end)
    for k, at in layout.sections.items():
        if sections[k].type != _NO_BITS:
            image[at : at + sections[k].size] = _bytes(code, sections[k])
    return image


def _relocate(
    image: bytearray, r: _Relocation, layout: _Layout, base: int, values: dict[int, int]
) -> None:
    form, what, origin = _RELOCATIONS[r.type]
    place = layout.sections[r.section] + r.offset
    if what == "G":
        value = base + layout.slots[r.symbol]
    elif what == "L" and r.symbol in layout.stubs:
        value = base + layout.stubs[r.symbol]
    elif r.symbol in values:
        value = values[r.symbol]
    else:
        raise LoadError("relocation against a dropped section")
    value += r.addend
    if origin:
        value -= base + (place if origin == "P" else layout.table)
    try:
        if isinstance(form, str) and form[0] == "<":
            struct.pack_into(form, image, place, value % 2**64 if form == "<Q" else value)
        else:
            (found,) = struct.unpack_from("<I", image, place)
            struct.pack_into("<I", image, place, found | _field(form, value, base + place))
    except (struct.error, OverflowError):
        raise LoadError(f"relocation of type {r.type} out of reach") from None


def _field(form: str | int, value: int, place: int) -> int:
    """The bits of an instruction, where zeros are. OverflowError for a value that has more."""
    if form == "jump":
        return _signed(value // 4, 26)
    if form == "page":
        pages = _signed(value // PAGE - place // PAGE, 21)
        return (pages & 3) << 29 | pages >> 2 << 5
    assert isinstance(form, int)
    if value % form:
        raise OverflowError("not aligned")
    return value % PAGE // form << 10


def _signed(n: int, bits: int) -> int:
    if not -(1 << bits - 1) <= n < 1 << bits - 1:
        raise OverflowError("out of reach")
    return n % (1 << bits)
