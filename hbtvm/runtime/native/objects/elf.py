"""Checks of a shared object before the dynamic loader maps it.

The loader trusts the file. It follows offsets beyond the end of a truncated file (SIGBUS), addresses outside
of all segments (SIGSEGV) and sizes that it asserts (SIGABRT). `check` compares the headers, segments,
sections and tables that the loader follows with the file's size and with one another. It does not judge
machine code, nor the functions that addresses point to: a package is code, which must be trusted.

Names are those of the System V ABI (``elf.h``) without prefix.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from hbtvm.runtime.native.objects.elf_image import EXECUTE, READ, WRITE, Image, Section, Segment, require

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SHARED = 3
_LOAD, _DYNAMIC, _HEADERS, _TLS, _STACK, _PROTECTED = 1, 2, 6, 7, 0x6474E551, 0x6474E552
_NO_BITS = 8
_ALLOCATED, _THREADS = 2, 0x400
_FUNCTION, _THREADS_OWN = 2, 6
_PAGE = 4096
_MOST_MEMORY = 1 << 34  # maximal bytes from the first segment to the end of the last

_NEEDED, _PLT_SIZE, _OLD_HASH, _STRINGS, _SYMBOLS, _RELA, _RELA_SIZE = 1, 2, 4, 5, 6, 7, 8
_RELA_ENTRY, _STRINGS_SIZE, _SYMBOL_ENTRY, _INIT, _FINI, _PLT_KIND = 9, 10, 11, 12, 13, 20
_PLT, _RELR_SIZE, _RELR, _RELR_ENTRY = 23, 35, 36, 37
_HASH, _VERSIONS, _RELA_COUNT = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFF9
_VERSIONS_DEFINED, _VERSIONS_NEEDED = 0x6FFFFFFC, 0x6FFFFFFE
_ARRAYS = {25: 27, 26: 28}  # tags of INIT_ARRAY and FINI_ARRAY, and of their sizes
_NAMES = (_NEEDED, 14, 15, 29)  # NEEDED, SONAME, RPATH and RUNPATH

_OTHERS = (
    3, 16, 21, 22, 24, 30, 0x6FFFFEF6, 0x6FFFFEF7, 0x6FFFFFFB, 0x6FFFFFFD, 0x6FFFFFFF, 0x70000001, 0x70000003,
    0x70000005,
)  # fmt: skip
"""PLTGOT, SYMBOLIC, DEBUG, TEXTREL, BIND_NOW, FLAGS, TLSDESC_PLT, TLSDESC_GOT, FLAGS_1, VERDEFNUM, VERNEEDNUM
and those of processors: the loader follows none of them."""

_KNOWN = {
    _PLT_SIZE, _STRINGS, _SYMBOLS, _RELA, _RELA_SIZE, _RELA_ENTRY, _STRINGS_SIZE, _SYMBOL_ENTRY, _INIT, _FINI,
    _PLT_KIND, _PLT, _RELR_SIZE, _RELR, _RELR_ENTRY, _HASH, _OLD_HASH, _VERSIONS, _RELA_COUNT,
    _VERSIONS_DEFINED, _VERSIONS_NEEDED,
    *_ARRAYS, *_ARRAYS.values(), *_NAMES, *_OTHERS,
}  # fmt: skip

_FIXED = {
    _RELA_ENTRY: (_RELA, 24), _SYMBOL_ENTRY: (_SYMBOLS, 24), _PLT_KIND: (_PLT, _RELA),
    _RELR_ENTRY: (_RELR, 8),
}  # fmt: skip
"""By tag: the table that needs it, and the only value that the loader accepts."""

_TABLES: dict[int, tuple[tuple[int, int], ...]] = {
    3: ((_STRINGS, _STRINGS_SIZE),), 4: ((_RELA, _RELA_SIZE), (_PLT, _PLT_SIZE)), 11: ((_SYMBOLS, 0),),
    14: ((25, 27),), 15: ((26, 28),), 19: ((_RELR, _RELR_SIZE),), 0x6FFFFFF6: ((_HASH, 0),),
    0x6FFFFFFE: ((_VERSIONS_NEEDED, 0),), 0x6FFFFFFF: ((_VERSIONS, 0),),
}  # fmt: skip
"""By type of section: the tags of its address and size; 0 if the size has no tag."""

_RELATIVE = {8, 1027}
_COPY = {5, 1024}  # relocations by which programs, but not libraries, copy a symbol's object
_OF_SYMBOLS = {6, 7, 1025, 1026}  # relocations that store a symbol's address, on x86-64 and 64-bit Arm

_RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def problem(code: bytes, shared: bool = True) -> str | None:
    """Return a description of the defect of a shared object or another ELF file; None if there is none.

    `code`: the whole file.
    `shared`: whether a shared object is expected. In other files, such as objects or a GPU's code, only
        headers and sections are checked.
    """
    try:
        _check(code, shared)
    except ValueError as error:
        return str(error)
    except struct.error:
        return "it is cut short"
    return None


def _check(code: bytes, shared: bool) -> None:
    require(code, "it is empty")
    require(code[:7] == b"\x7fELF\x02\x01\x01", "it is not an ELF file of 64 bits")
    header = _HEADER.unpack_from(code)
    kind, at, sections_at, size, n, section_size, n_sections, names = (
        header[i] for i in (1, 5, 6, *range(9, 14))
    )
    require(n_sections and section_size == _SECTION.size, "its section headers have a wrong size")
    require(
        sections_at + n_sections * _SECTION.size <= len(code), "it is cut short: section headers are missing"
    )
    require(names < n_sections, "its section of names is missing")
    sections = [
        Section(*_SECTION.unpack_from(code, sections_at + i * _SECTION.size)) for i in range(n_sections)
    ]
    for section in sections:
        inside = section.kind in (0, _NO_BITS) or section.offset + section.size <= len(code)
        require(inside, "it is cut short: a section ends beyond the file")
    require(at + n * _SEGMENT.size <= len(code), "it is cut short: program headers are missing")
    if not shared:
        return
    require(kind == _SHARED, f"it is of ELF type {kind}, expected {_SHARED}")
    require(n and size == _SEGMENT.size, "its program headers have a wrong size")
    segments = [Segment(*_SEGMENT.unpack_from(code, at + i * _SEGMENT.size)) for i in range(n)]
    _Checked(code, (at, n * size), segments, sections).check()


class _Checked(Image):
    """A shared object with checked tables.

    `headers`: offset of its program headers, and their bytes.
    `segments`, `sections`: its headers.
    """

    def __init__(
        self, code: bytes, headers: tuple[int, int], segments: list[Segment], sections: list[Section]
    ) -> None:
        super().__init__(code, [segment for segment in segments if segment.kind == _LOAD])
        self._headers, self._segments, self._sections = headers, segments, sections

    def check(self) -> None:
        """Raise a `ValueError` if the loader would leave the file or its memory."""
        self._check_loaded()
        self._check_other_segments()
        self._check_sections()
        tags = self._tags()
        value = {tag: values[0] for tag, values in tags.items()}
        for tag in (_STRINGS, _STRINGS_SIZE, _SYMBOLS):
            require(tag in value, f"its dynamic section lacks tag {tag:#x}")
        for tag, (table, fixed) in _FIXED.items():
            right = value.get(tag, 0 if table in value else fixed) == fixed
            require(right, f"tag {tag:#x} is {value.get(tag)}, expected {fixed}")
        self._check_against_sections(value)
        strings = self.bytes(value[_STRINGS], value[_STRINGS_SIZE])
        require(strings.endswith(b"\0"), "its names have no end")
        for tag in _NAMES:
            for at in tags.get(tag, ()):
                require(at < len(strings) and strings[at], "a name lies outside of its names")
        for tag in (_INIT, _FINI):
            if tag in value:
                require(self.in_memory(value[tag], 1, EXECUTE), "a function lies outside of its code")
        for tag, size in _ARRAYS.items():
            if value.get(size):
                self.bytes(value.get(tag, 0), value[size], 8)
        symbols = self._symbols(value, len(strings))
        self._check_versions(value, symbols, strings, {_text(strings, at) for at in tags.get(_NEEDED, ())})
        self._check_relocations(value, symbols)

    def _check_loaded(self) -> None:
        require(self.loaded, "it has no segment to load")
        end = 0
        for segment in self.loaded:
            require(
                segment.offset + segment.size <= len(self._code),
                "it is cut short: a segment ends beyond the file",
            )
            require(segment.size <= segment.memory, "a segment has less memory than it fills")
            require(segment.flags & READ, "a segment can't be read")
            require(end <= segment.address, "its segments overlap")
            require(
                segment.alignment >= 4096
                and _is_alignment(segment.alignment, 1 << 24)
                and (segment.address - segment.offset) % segment.alignment == 0,
                "a segment is not aligned",
            )
            end = segment.address + segment.memory
            require(end - self.loaded[0].address <= _MOST_MEMORY, "it takes too much memory")

    def _check_other_segments(self) -> None:
        for segment in self._segments:
            if segment.kind in (_LOAD, _STACK, 0) or not segment.memory:
                continue
            if segment.kind == _PROTECTED:
                # Whole pages, which some linkers do not place in the file.
                first, last = segment.address // _PAGE, (segment.address + segment.memory - 1) // _PAGE
                pages = (
                    (load.address // _PAGE, (load.address + load.memory - 1) // _PAGE) for load in self.loaded
                )
                require(any(at <= first and last <= end for at, end in pages), "a segment is not in memory")
            elif segment.size:
                self.check_within(segment, segment.size)
            # The range protected after relocation may end with the last page.
            most = {_TLS: 1 << 20, _PROTECTED: segment.size + 65536}.get(segment.kind, segment.size)
            require(segment.size <= segment.memory <= most, "a segment has a wrong size")
            require(_is_alignment(segment.alignment, 1 << 16), "a segment is not aligned")
            headers = segment.kind != _HEADERS or (segment.offset, segment.size) == self._headers
            require(headers, "its program headers are not where they should be")

    def _check_sections(self) -> None:
        threads = [segment for segment in self._segments if segment.kind == _TLS]
        local = [
            section for section in self._sections if section.flags & _ALLOCATED and section.flags & _THREADS
        ]
        require(len(threads) == bool(local), "its memory of threads is damaged")
        for segment in threads:
            first = min(section.address for section in local)
            end = max(section.address + section.size for section in local)
            filled = max(
                (section.address + section.size for section in local if section.kind != _NO_BITS),
                default=first,
            )
            begins = (segment.address, segment.size) == (first, filled - first)
            require(begins and end <= first + segment.memory, "its memory of threads is damaged")
        for section in self._sections:
            if section.flags & _ALLOCATED and not (section.kind == _NO_BITS and section in local):
                filled = section.kind != _NO_BITS
                self.check_within(section, section.size if filled else 0)
                require(filled or not self.is_filled(section), "its memory of zeros is filled")
                flags = EXECUTE * bool(section.flags & 4) | WRITE * bool(section.flags & 1)
                require(self.in_memory(section.address, section.size, flags), "a section is not in memory")

    def _check_against_sections(self, value: dict[int, int]) -> None:
        """Check that the dynamic section names the same tables as the section headers."""
        allocated = [section for section in self._sections if section.flags & _ALLOCATED]
        for kind, tables in _TABLES.items():
            stated = sorted(
                (section.address, section.size)
                for section in allocated
                if section.kind == kind and section.size
            )
            named = sorted(
                (value.get(at, 0), value[size] if size in value else sum(n for _, n in stated))
                for at, size in tables
                if (value.get(size) if size else at in value)
            )
            require(stated == named, f"its sections and its dynamic section differ (section type {kind:#x})")

    def _tags(self) -> dict[int, list[int]]:
        """Return the entries of the dynamic section, up to its end."""
        dynamic = [segment for segment in self._segments if segment.kind == _DYNAMIC]
        require(len(dynamic) == 1, f"it has {len(dynamic)} dynamic sections")
        at, size = dynamic[0].address, dynamic[0].size
        require(self.in_memory(at, size, WRITE) and at % 8 == 0, "its dynamic section can't be written")
        tags: dict[int, list[int]] = {}
        held = min(size, self.until_end(at))
        # Zeros follow the file's bytes.
        entries = self.bytes(at, held // 16 * 16) + bytes(16 if held < size else 0)
        for tag, value in struct.iter_unpack("<QQ", entries):
            if tag == 0:
                return tags
            require(tag in _KNOWN, f"its dynamic section has an unknown tag, {tag:#x}")
            require(tag == _NEEDED or tag not in tags, f"its dynamic section has tag {tag:#x} twice")
            tags.setdefault(tag, []).append(value)
        raise ValueError("its dynamic section has no end")

    def _symbols(self, value: dict[int, int], names: int) -> np.ndarray:
        """Return the symbols; hash tables define their number."""
        require(_HASH in value or _OLD_HASH in value, "it has no table of hashes")
        counts = []
        if _OLD_HASH in value:
            counts.append(self._old_hashed(value[_OLD_HASH]))
        if _HASH in value:
            counts.append(self._hashed(value[_HASH]))
        symbols = self.array(value[_SYMBOLS], max(counts), _SYMBOL, 8)
        require((symbols["name"] < names).all(), "a symbol's name lies outside of its names")
        kinds, defined = symbols["info"] & 15, symbols["section"] != 0
        inside = self.all_in_memory(symbols["value"][defined & (kinds != _THREADS_OWN)], 0)
        inside &= self.all_in_memory(symbols["value"][defined & (kinds == _FUNCTION)], 0, EXECUTE)
        require(inside, "a symbol lies outside of its memory")
        return symbols

    def _old_hashed(self, at: int) -> int:
        """Check a hash table of the System V ABI; return the number of symbols."""
        n, count = struct.unpack("<II", self.bytes(at, 8, 4))
        next_ = self.array(at + 8, n + count, "<u4")
        used = next_[next_ > 0]
        # If each symbol follows at most one symbol, there is no cycle.
        sound = n and (used < count).all() and len(np.unique(used)) == len(used)
        require(sound, "its table of hashes is damaged")
        return int(count)

    def _hashed(self, at: int) -> int:
        """Check a hash table of GNU's linker; return the number of symbols."""
        n, first, words, _ = struct.unpack("<IIII", self.bytes(at, 16, 8))
        require(n and words and words & (words - 1) == 0, "its table of hashes is damaged")
        buckets = self.array(at + 16 + 8 * words, n, "<u4")
        used = buckets[buckets > 0]
        require((used >= first).all(), "its table of hashes is damaged")
        count = first
        if used.size:
            chains = at + 16 + 8 * words + 4 * n
            after = self.until_end(chains) // 4
            last = int(used.max()) - first
            hashes = self.array(chains, after, "<u4")[last:]
            ends = np.flatnonzero(hashes & 1)
            require(ends.size, "its table of hashes has no end")
            count = first + last + int(ends[0]) + 1
        return int(count)

    def _check_versions(
        self, value: dict[int, int], symbols: np.ndarray, strings: bytes, needed: set[bytes]
    ) -> None:
        highest = 1
        if _VERSIONS_DEFINED in value:
            for at in self._chain(value[_VERSIONS_DEFINED], 16):
                _, _, number, _, _, inner, _ = struct.unpack("<HHHHIII", self.bytes(at, 20))
                (name,) = struct.unpack("<I", self.bytes(at + inner, 4))
                require(name < len(strings), "a name lies outside of its names")
                highest = max(highest, number & 0x7FFF)
        if _VERSIONS_NEEDED in value:
            for at in self._chain(value[_VERSIONS_NEEDED], 12):
                _, _, file, inner, _ = struct.unpack("<HHIII", self.bytes(at, 16))
                require(file < len(strings), "a name lies outside of its names")
                require(_text(strings, file) in needed, "it needs a version of a library it does not load")
                for entry in self._chain(at + inner, 12):
                    _, _, number, name, _ = struct.unpack("<IHHII", self.bytes(entry, 16))
                    require(name < len(strings), "a name lies outside of its names")
                    highest = max(highest, number & 0x7FFF)
        if _VERSIONS in value:
            numbers = self.array(value[_VERSIONS], len(symbols), "<u2", 2) & 0x7FFF
            require((numbers <= highest).all(), "a symbol has an unknown version")

    def _chain(self, at: int, place: int) -> Iterator[int]:
        """Yield addresses of entries, each with the distance to the next at `place`; 0 ends the chain."""
        while True:
            (after,) = struct.unpack("<I", self.bytes(at + place, 4))
            yield at
            if not after:
                return
            at += after

    def _check_relocations(self, value: dict[int, int], symbols: np.ndarray) -> None:
        for tag, size in ((_RELA, _RELA_SIZE), (_PLT, _PLT_SIZE)):
            if not value.get(size):
                continue
            require(tag in value and value[size] % 24 == 0, "its relocations are damaged")
            relocations = self.array(value[tag], value[size] // 24, _RELOCATION, 8)
            require((relocations["symbol"] < len(symbols)).all(), "a relocation has no symbol")
            kinds = relocations["kind"].tolist()
            require(not {*kinds} & _COPY, "a relocation copies a symbol")
            lacks = {*relocations["kind"][relocations["symbol"] == 0].tolist()} & _OF_SYMBOLS
            require(not lacks, "a relocation lacks its symbol")
            relative = value.get(_RELA_COUNT, 0) if tag == _RELA else 0
            ordered = relative <= len(relocations) and {*kinds[:relative]} <= _RELATIVE
            require(ordered, "its relocations are not in order")
            self._check_written(relocations["offset"])
        if value.get(_RELR_SIZE):
            self._check_written(self._packed(value.get(_RELR, 0), value[_RELR_SIZE]))

    def _packed(self, at: int, size: int) -> np.ndarray:
        """Return addresses of packed relative relocations: even words are addresses, odd words bitmaps."""
        addresses, here = [], 0
        for word in self.array(at, size // 8, "<u8", 8).tolist():
            if word & 1:
                addresses += [here + 8 * i for i in range(63) if word >> (i + 1) & 1]
                here += 63 * 8
            else:
                addresses.append(word)
                here = word + 8
        return np.array(addresses, object)

    def _check_written(self, places: np.ndarray) -> None:
        inside = self.all_in_memory(places, 8, WRITE)
        require(inside, "a relocation changes what can't be written")


def _is_alignment(number: int, most: int) -> bool:
    return number & (number - 1) == 0 and number <= most


def _text(strings: bytes, at: int) -> bytes:
    return strings[at : strings.index(b"\0", at)]
