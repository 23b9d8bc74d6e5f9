"""Reads the machine code that compilers made of an extension: digests and resources.

Object files are read, not the linked library: there a reference names its target, while a library
holds distances that change with everything between. So equal code has equal digests wherever the
linker puts it. Code is taken with its relocations and with the constants that it reads.

Contract:

- an object file may be anything: every read is bounds-checked, and sizes and counts are limited. A
  file that is malformed, too large or holds no machine code (``-flto``) has no digest, nor has
  code for GPUs, of which only what ptxas reports is told;
- names, comments, debug information, unwinding tables and notes do not count. Names of static data
  and of functions' variables do not either; those of global functions count in the whole digest;
- nothing is run or loaded.

Does not see through different instructions that do the same, nor line numbers that code itself
holds, as an assertion's may.

Pure, but for reading the files.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from kernelgym.verdict import MOST_FUNCTIONS, BuiltFunction

_MOST_BYTES = 32 << 20
_MOST_SECTIONS, _MOST_SYMBOLS, _MOST_RELOCATIONS = 20_000, 50_000, 100_000
_MOST_TIMES = 4  # that a byte is hashed, on average: functions may overlap
_RELOCATION_BYTES = 24  # of one relocation in a file
_MOST_NAME = 4096
_LONGEST_NAME = 200
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8  # section types
_ALLOCATED, _EXECUTABLE = 2, 4  # section flags
_FUNCTION_TYPES = (2, 10)  # a function, and one that is resolved when it is loaded
_X86_64, _X86_RELATIVE = 62, (2, 4)  # these point four bytes past their target's start
_UNCOUNTED = re.compile(r"\.eh_frame|\.note|\.comment|\.gnu\.lto|\.debug")
# Functions of the libraries that C++ text instantiates, and the judge's own.
_FOREIGN = re.compile(
    r"_Z+N[KVRO]*(St|2at|3c10|5torch|8pybind11|9kernelgym|9__gnu_cxx)|_ZSt|_ZT|_ZL\d+pybind11_|_Z\d+__"
    r"|_GLOBAL__|__|kernelgym_|pybind11_|Py[A-Z]"
)


@dataclass(frozen=True, slots=True)
class MachineCode:
    """Machine code that compilers made from an extension's own sources."""

    digest: str = ""
    """Digest of all code and constants; empty if unknown."""
    functions: tuple[BuiltFunction, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the machine code that `to_dict` wrote as data."""
        return cls(data["digest"], tuple(BuiltFunction(**each) for each in data["functions"]))


NO_CODE = MachineCode()


def machine_code(objects: Iterable[Path]) -> MachineCode:
    """Return the digest and resources of an extension's machine code, as far as known.

    Args:
        objects: Object files of the extension, without those that all extensions share.
    """
    found = NO_CODE
    for path in objects:
        try:
            one = _Object(_bytes(path)).read()
        except (OSError, ValueError, OverflowError, struct.error, IndexError):
            one = NO_CODE
        if not one.digest:
            return NO_CODE
        found = one if found is NO_CODE else joined(found, one)
    return found


def device_code(log: str) -> MachineCode:
    """Return the resources of device code, as nvcc's assembler reports them.

    The code lies compressed in the object file, beside names that differ with each build.

    Args:
        log: The output of ``ptxas -v``.
    """
    return MachineCode("", ptxas_report(log)[:MOST_FUNCTIONS])


def joined(first: MachineCode, second: MachineCode) -> MachineCode:
    """Return the code of two builds together; unknown if either is."""
    digest = ""
    if first.digest and second.digest:
        digest = _digest([first.digest.encode(), second.digest.encode()])
    return MachineCode(digest, (*first.functions, *second.functions)[:MOST_FUNCTIONS])


_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '([^']{1,2000})' for 'sm_\w+'")
_ABOUT = re.compile(r"ptxas info\s*: Function properties for (\S{1,2000})")
_SPILLS = re.compile(r"\d+ bytes stack frame, (\d{1,9}) bytes spill stores")
_USED = re.compile(r"ptxas info\s*: Used (\d{1,4}) registers")
_SHARED = re.compile(r"\b(\d{1,9}) bytes smem")


def ptxas_report(log: str) -> tuple[BuiltFunction, ...]:
    """Return what ``ptxas -v`` reports of each kernel, in its order.

    Args:
        log: A compiler's output, with or without such reports.
    """
    found: dict[str, BuiltFunction] = {}
    entry = about = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = about = match[1][:_LONGEST_NAME]
            found[entry] = BuiltFunction(entry)
        elif match := _ABOUT.search(line):
            about = match[1][:_LONGEST_NAME]
        elif entry and about == entry and (match := _SPILLS.search(line)):
            found[entry] = replace(found[entry], spilled_bytes=int(match[1]))
        elif entry and (match := _USED.search(line)):
            shared = _SHARED.search(line)
            found[entry] = replace(
                found[entry],
                registers=int(match[1]),
                shared_bytes=int(shared[1]) if shared else 0,
            )
    return tuple(found.values())


_ELSEWHERE = re.compile(r"/[^:]*:\d+:\d+: (optimized|missed|note): ")


def own_reports(log: str) -> str:
    """Return a log without optimisers' reports on other files.

    Those are named by their whole path, as headers are: with a report such as ``-fopt-info-vec``
    they are most of the log.
    """
    return "".join(line for line in log.splitlines(keepends=True) if not _ELSEWHERE.match(line))


def without_report(log: str) -> str:
    """Return a log without what ``ptxas -v`` says."""
    lines = log.splitlines(keepends=True)
    kept = (each for each in lines if not (each.startswith("ptxas info") or _SPILLS.search(each)))
    return "".join(kept)


@dataclass(slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    size: int
    data: bytes
    link: int
    applies_to: int
    align: int
    relocations: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Relocations, as (offset, type, number of the symbol, addend)."""
    told: bytes | None = None
    """Text that stands for the section's relocations in a digest; computed at first use."""


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    kind: int
    is_global: bool
    section: int
    value: int
    size: int


class _Object:
    """One relocatable 64-bit little-endian ELF file.

    Raises:
        ValueError: If it is none, or beyond a limit.
        struct.error, IndexError: If it is cut short.
    """

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        kind, self._machine = struct.unpack_from("<HH", data, 16)
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count, names_at = struct.unpack_from("<HHH", data, 58)
        if kind != 1 or size != 64 or not 0 < count <= _MOST_SECTIONS:
            raise ValueError("no relocatable file, or too many sections")
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * n) for n in range(count)]
        if sum(row[5] for row in raw if row[1] not in (0, _NO_BITS)) > len(data):
            raise ValueError("sections overlap")
        names = _part(data, raw[names_at])
        self._sections = [
            _Section(
                _text(names, row[0]),
                row[1],
                row[2],
                row[5],
                b"" if row[1] in (0, _NO_BITS) else _part(data, row),
                row[6],
                row[7],
                row[8],
            )
            for row in raw
        ]
        self._left = _MOST_TIMES * len(data)  # bytes to hash
        self._symbols: list[_Symbol] = []
        relocations = 0
        for section in self._sections:
            if section.kind == _SYMBOLS:
                self._symbols = self._read_symbols(section)
        for section in self._sections:
            if section.kind == _RELOCATIONS:
                relocations += len(section.data) // 24
                if relocations > _MOST_RELOCATIONS:
                    raise ValueError("too many relocations")
                target = self._sections[section.applies_to]
                whole = section.data[: len(section.data) // 24 * 24]
                for offset, info, addend in struct.iter_unpack("<QQq", whole):
                    target.relocations.append((offset, info & 0xFFFFFFFF, info >> 32, addend))
        for section in self._sections:
            section.relocations.sort()
        self._functions = self._by_place()
        self._data: dict[tuple[int, int, int], bytes] = {}
        counted = (
            number
            for number, section in enumerate(self._sections)
            if section.flags & _ALLOCATED and not _UNCOUNTED.match(section.name)
        )
        # Debug information adds sections: numbered among these, others keep their numbers.
        self._counted = {number: place for place, number in enumerate(counted)}

    def _read_symbols(self, table: _Section) -> list[_Symbol]:
        if len(table.data) // 24 > _MOST_SYMBOLS:
            raise ValueError("too many symbols")
        names = self._sections[table.link].data
        whole = table.data[: len(table.data) // 24 * 24]
        found = []
        for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", whole):
            text = _text(names, name)
            if len(text) > _MOST_NAME:  # relocations repeat names, and there may be many
                raise ValueError("a symbol's name is too long")
            found.append(_Symbol(text, info & 15, info >> 4 != 0, section, value, size))
        return found

    def _by_place(self) -> dict[int, list[_Symbol]]:
        """Return each section's functions, ordered by offset."""
        found: dict[int, list[_Symbol]] = {}
        for symbol in self._symbols:
            if symbol.kind in _FUNCTION_TYPES and 0 < symbol.section < len(self._sections):
                section = self._sections[symbol.section]
                if section.flags & _EXECUTABLE and symbol.size:
                    if symbol.value + symbol.size > section.size:
                        raise ValueError("a function reaches past its section's end")
                    found.setdefault(symbol.section, []).append(symbol)
        for functions in found.values():
            functions.sort(key=lambda symbol: (symbol.value, symbol.name))
        return found

    def read(self) -> MachineCode:
        """Return the object file's digest, and the digests of its functions."""
        if not self._functions or any(s.name.startswith(".gnu.lto") for s in self._sections):
            return NO_CODE
        parts: dict[str, list[tuple[str, _Symbol]]] = {}
        for symbols in self._functions.values():
            for symbol in symbols:
                # A compiler splits functions into name.cold, name._omp_fn.0 and the like.
                base, _, rest = symbol.name.partition(".")
                parts.setdefault(base or symbol.name, []).append((rest, symbol))
        # Those of libraries are in the whole digest, and of no interest one by one.
        ordered = sorted(name for name in parts if not _FOREIGN.match(name))
        functions = tuple(
            BuiltFunction(_printable(name), self._of_function(name, parts[name]))
            for name in ordered[:MOST_FUNCTIONS]
        )
        return MachineCode(self._of_all(), functions)

    def _of_all(self) -> str:
        told: list[bytes] = []
        for number in self._counted:
            section = self._sections[number]
            about = section.name, section.kind, section.flags, section.size, section.align
            told.append(" ".join(map(str, about)).encode())
            told.append(section.data)
            told.append(self._relocations(section))
        named = (
            f"{symbol.name} {self._place(symbol)} {symbol.value} {symbol.size}"
            for symbol in self._symbols
            if symbol.is_global and symbol.section
        )
        told += [name.encode() for name in sorted(named)]
        return _digest(told)

    def _relocations(self, section: _Section) -> bytes:
        """Return a text that stands for a section's references in a digest."""
        if section.told is None:
            self._spend(_RELOCATION_BYTES * len(section.relocations))
            told = (
                f"{offset} {kind} {self._reference(number)} {addend}\n".encode()
                for offset, kind, number, addend in section.relocations
            )
            section.told = _digest(told).encode()
        return section.told

    def _reference(self, number: int) -> str:
        symbol = self._symbols[number]
        if symbol.is_global:
            return symbol.name
        return f"@{self._counted.get(symbol.section, -1)} {symbol.value}"

    def _place(self, symbol: _Symbol) -> int:
        """Return the section and offset of a symbol; a section below 0 if the linker decides."""
        return self._counted.get(symbol.section, -symbol.section)

    def _of_function(self, base: str, parts: Sequence[tuple[str, _Symbol]]) -> str:
        told: list[bytes] = []
        for rest, symbol in sorted(parts, key=lambda part: (part[0], part[1].section)):
            section, end = self._sections[symbol.section], symbol.value + symbol.size
            told += [rest.encode(), section.data[symbol.value : end]]
            first = bisect_left(section.relocations, (symbol.value,))
            last = bisect_left(section.relocations, (end,))
            self._spend(symbol.size + _RELOCATION_BYTES * (last - first))
            for offset, kind, target, addend in section.relocations[first:last]:
                told.append(f"{offset - symbol.value} {kind}".encode())
                told.append(self._target(base, kind, target, addend))
        return _digest(told)

    def _target(self, base: str, kind: int, number: int, addend: int) -> bytes:
        """Return a text for the target of a reference, independent of its address."""
        symbol = self._symbols[number]
        if not 0 < symbol.section < len(self._sections):
            return f"{symbol.name} {addend}".encode()  # another file's
        section = self._sections[symbol.section]
        if section.flags & _EXECUTABLE:
            bias = 4 if self._machine == _X86_64 and kind in _X86_RELATIVE else 0
            at = symbol.value + addend + bias
            functions = self._functions.get(symbol.section, [])
            index = bisect_right(functions, at, key=lambda each: each.value) - 1
            if index >= 0 and at < functions[index].value + functions[index].size:
                function = functions[index]
                name, _, rest = function.name.partition(".")
                name = "" if name == base else name
                return f"code {name}.{rest} {at - function.value}".encode()
            return f"code {section.name} {at}".encode()
        if symbol.is_global and symbol.size:
            return self._constant(symbol.section, symbol.value, symbol.size) + f" {addend}".encode()
        whole = self._constant(symbol.section, 0, section.size)
        return whole + f" {symbol.value + addend}".encode()

    def _constant(self, number: int, start: int, size: int) -> bytes:
        """Return a text that stands for data, such as constants that code reads, in a digest."""
        place = number, start, size
        if place not in self._data:
            section = self._sections[number]
            self._spend(size)
            data = section.data[start : start + size]
            about = f"{size} {section.align}".encode()
            made = _digest([data, self._relocations(section), about])
            self._data[place] = f"data {made}".encode()
        return self._data[place]

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError("functions overlap")


def _bytes(path: Path) -> bytes:
    """Return the bytes of a file that a compiler wrote.

    Raises:
        OSError: If it cannot be read, or is a link.
        ValueError: If it is too large.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("too large")
    return data


def _part(data: bytes, row: Sequence[int]) -> bytes:
    start, length = row[4], row[5]
    if start + length > len(data):
        raise ValueError("a section reaches past the end of the file")
    return data[start : start + length]


def _text(names: bytes, start: int) -> str:
    end = names.index(b"\0", start)
    return names[start:end].decode("latin-1")


def _printable(name: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:_LONGEST_NAME])


def _digest(parts: Iterable[bytes]) -> str:
    """Return a digest of several parts, as 32 hexadecimal digits; their borders count."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()
