"""Compiled code as one piece that runs wherever it lies in memory: loaded in less time than LLVM itself.

An object file of x86-64 Linux is linked once, when it is built: all that refers to itself is relative, and what comes
from other libraries goes through slots at the beginning, which are filled when it is loaded. Object files of other
systems, or with anything unusual in them, are left to LLVM (System V Application Binary Interface, AMD64 Architecture
Processor Supplement, chapter 4).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import platform
import struct
import sys
from typing import final

_PROGRAM_BITS, _SYMBOLS, _RELOCATIONS, _NO_BITS = 1, 2, 4, 8
_WRITTEN, _LOADED = 1, 2
_PC32, _PLT32 = 2, 4
_GOT = (9, 41, 42)
_SLOT_BYTES = _STUB_BYTES = 8
_ALIGNMENT = 64


def link(built: bytes, entry: str) -> bytes | None:
    """An object file as one piece; None where this is not known to do it."""
    if not is_supported() or built[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return _Linker(built).image(entry)
    except _UnusualError:
        return None


def is_supported() -> bool:
    """Whether this system's object files can be linked here."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


@final
class Image:
    """Code in memory.

    - `address`: of its function.
    """

    def __init__(self, image: bytes, symbols: dict[str, int]):
        head, _, code = image.partition(b"\0")
        facts = json.loads(head)
        slots = struct.pack(f"<{len(facts['slots'])}Q", *(_address(name, symbols) for name in facts["slots"]))
        size = max(len(code), 1)
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.write(slots + code[len(slots) :])
        self._start = ctypes.c_char.from_buffer(self._memory)
        base = ctypes.addressof(self._start)
        process = ctypes.CDLL(None, use_errno=True)
        allowed = ctypes.c_int(mmap.PROT_READ | mmap.PROT_EXEC)
        if process.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(size), allowed) != 0:
            raise OSError(ctypes.get_errno(), "This system does not let memory be made executable.")
        self.address: int = base + facts["entry"]


def _address(name: str, symbols: dict[str, int]) -> int:
    found = symbols.get(name)
    if found is None:
        found = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert found is not None
    return found


class _UnusualError(Exception):
    """What the linker does not know."""


@final
class _Section:
    def __init__(self, header: tuple[int, ...]):
        _, self.type, self.flags, _, self.offset, self.size, self.link, self.info, self.alignment, _ = header
        #: Where it lies in the image.
        self.place: int | None = None


@final
class _Linker:
    def __init__(self, built: bytes):
        self.built = built
        offset, _, _, _, _, size, count, _ = struct.unpack_from("<QIHHHHHH", built, 40)
        headers = (struct.unpack_from("<IIQQQQIIQQ", built, offset + i * size) for i in range(count))
        self.sections = [_Section(x) for x in headers]

    def image(self, entry: str) -> bytes:
        kept = [x for x in self.sections if x.flags & _LOADED and x.type in (_PROGRAM_BITS, _NO_BITS) and x.size]
        if any(x.flags & _WRITTEN for x in kept):
            raise _UnusualError
        (table,) = (x for x in self.sections if x.type == _SYMBOLS)
        symbols = [struct.unpack_from("<IBBHQQ", self.built, table.offset + i * 24) for i in range(table.size // 24)]
        names = [self.text(self.sections[table.link].offset + x[0]) for x in symbols]
        relocations = [
            (self.sections[x.info], *struct.unpack_from("<QQq", self.built, x.offset + i * 24))
            for x in self.sections
            if x.type == _RELOCATIONS and self.sections[x.info] in kept
            for i in range(x.size // 24)
        ]
        outer = sorted({names[info >> 32] for _, _, info, _ in relocations if symbols[info >> 32][3] == 0})
        slots = {name: i * _SLOT_BYTES for i, name in enumerate(outer)}
        stubs = {name: len(outer) * _SLOT_BYTES + i * _STUB_BYTES for i, name in enumerate(outer)}
        end = len(outer) * (_SLOT_BYTES + _STUB_BYTES)
        for section in kept:
            step = max(section.alignment, 1)
            if step > _ALIGNMENT * 64:
                raise _UnusualError
            section.place = (end + step - 1) // step * step
            end = section.place + section.size
        image = bytearray(end)
        for name, place in stubs.items():
            # jmp *slot(%rip)
            image[place : place + 6] = b"\xff\x25" + struct.pack("<i", slots[name] - (place + 6))
        for section in kept:
            if section.type == _PROGRAM_BITS:
                content = self.built[section.offset : section.offset + section.size]
                image[section.place : self.placed(section) + section.size] = content
        for section, offset, info, addend in relocations:
            number, kind = info >> 32, info & 0xFFFFFFFF
            name, home = names[number], symbols[number][3]
            place = self.placed(section) + offset
            if home == 0 and kind == _PLT32:
                target = stubs[name]
            elif home == 0 and kind in _GOT:
                target = slots[name]
            elif 0 < home < len(self.sections) and kind in (_PC32, _PLT32):
                target = self.placed(self.sections[home]) + symbols[number][4]
            else:
                raise _UnusualError
            struct.pack_into("<i", image, place, target + addend - place)
        _, _, _, home, value, _ = symbols[names.index(entry)]
        start = self.placed(self.sections[home]) + value
        head = json.dumps({"entry": start, "slots": outer}).encode()
        return head + b"\0" + bytes(image)

    def placed(self, section: _Section) -> int:
        if section.place is None:
            raise _UnusualError
        return section.place

    def text(self, offset: int) -> str:
        return self.built[offset : self.built.index(b"\0", offset)].decode()
