"""Calls the compiled code that cuts texts into terms; what is passed there is as `text.c` declares it."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph.characters import SPACE, TOKEN, WORD
from hbtvm.graph.text import Terms, Vectorize
from hbtvm.runtime.text_library import InputFields, StageFields, TextFields, TextLibrary
from hbtvm.runtime.texts import PADDING, Texts, address_of, of_strings

_ANALYZERS = {"word": 0, "char": 1, "char_wb": 2, "pairs": 3}
_STAGES = {"binary": 0, "logarithm": 1, "scale": 2, "l1": 3, "l2": 4, "max": 5, "select": 6}
_CHUNK = 1 << 16
"""Bytes of texts that are worth a thread of their own."""

_BRIEF = 1 << 12
"""Up to so many bytes, the interpreter stays locked: to give it back and get it again may take longer."""

_SLOT = np.dtype([("first", np.uint64), ("second", np.uint64), ("column", np.int32), ("start", np.uint32)])

_TYPES = {"float64": 0, "float32": 1, "int64": 2}
"""Of values, in which rows are written; the others' come from float64."""

_I64 = ctypes.c_int64

_ENTRIES = 512
"""Of one row, at first."""


class TextKernel:
    """A vectorizer's tables with the code that reads them; safe to call from several threads at once.

    Parameters
    ----------
    library
        The code.
    operation
        What is computed.
    """

    def __init__(self, library: TextLibrary, operation: Vectorize) -> None:
        self._library, self.operation = library, operation
        self.width = operation.width
        self._text: TextFields | None = None
        self._address = 0
        self._keep: list[Any] = []
        self._lock = threading.Lock()
        self._row = ctypes.c_double * self.width
        # In which type entries are written, and how many there may be for each byte of a text.
        self._written = np.dtype(operation.dtype if operation.dtype in _TYPES else "float64")
        analyzer = operation.analyzer
        lengths = min(analyzer.longest - analyzer.shortest + 1, 8)
        self._per_byte = lengths / 4 if analyzer.kind == "word" else float(lengths)
        self._spaces: list[_Space] = []

    def one(self, text: str) -> np.ndarray:
        """The columns, or weighted sums, of one text: float64, shape (1, width)."""
        if self._text is None:
            self._load_once()
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > _BRIEF:
            return self.sums(of_strings([text]))
        out = self._row()
        waiting = self._library.functions().one_sums(self._address, data, len(data), out)
        if waiting:
            if waiting < 0:
                raise MemoryError
            return self.sums(of_strings([text]))
        row: np.ndarray = np.frombuffer(out, np.float64).reshape(1, self.width)  # type: ignore[call-overload]
        return row

    def sums(self, texts: Texts) -> np.ndarray:
        """The columns, or weighted sums, of texts: float64, shape (rows, width)."""
        text, call = self._loaded(), self._library.functions().sums
        out = np.empty((texts.rows, self.width))
        context = np.zeros(texts.rows, np.uint8)
        given, waiting = _input(texts), [0]
        address, marks, row = address_of(out), address_of(context), 8 * self.width

        def work(first: int, last: int) -> None:
            done = call(text, ctypes.byref(given), first, last, address + first * row, marks + first)
            if done < 0:
                raise MemoryError
            if done:
                waiting[0] = 1

        self._shared(texts, lambda _, first, last: work(first, last))
        if waiting[0]:
            rows = np.flatnonzero(context)
            out[rows] = self.sums(texts.lowered(rows.tolist()))
        return out

    def row(self, text: str) -> tuple[np.ndarray, np.ndarray] | None:
        """The columns (int32) and values of one short text's entries, as of `rows`; None for a longer one."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > _BRIEF:
            return None
        try:
            space = self._spaces.pop()
        except IndexError:
            space = _Space(_ENTRIES, self._written)
        used = self._library.functions().one_row(
            self._loaded(), data, len(data), _TYPES[self._written.name], space.entries, *space.addresses
        )
        if used < 0:
            if used == -1:
                raise MemoryError
            return self.row(text.lower())
        if used > space.entries:
            self._spaces.append(_Space(int(used), self._written))
            return self.row(text)
        columns, values = space.columns[:used].copy(), space.values[:used]
        values = values.astype(self.operation.dtype)
        self._spaces.append(space)
        return columns, values

    def rows(self, texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sparse rows: columns (int32) and values of all entries, and where rows start (int64)."""
        text, call, given = self._loaded(), self._library.functions().rows, _input(texts)
        context = np.zeros(texts.rows, np.uint8)
        parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        ends = np.zeros(texts.rows + 1, np.int64)
        kind = _TYPES[self._written.name]
        expected = texts.texts if self.operation.analyzer.kind == "pairs" else texts.size * self._per_byte

        def work(at: int, first: int, last: int) -> None:
            found = parts[at] = []
            needed, base, space = _I64(), 0, max(256, int(expected * (last - first) / texts.rows))
            while first < last:
                columns, values = np.empty(space, np.int32), np.empty(space, self._written)
                done = call(
                    text, ctypes.byref(given), first, last, kind, space, address_of(columns),
                    address_of(values), address_of(ends) + 8 * (first + 1), address_of(context) + first,
                    ctypes.byref(needed),
                )  # fmt: skip
                if done < 0:
                    raise MemoryError
                used = int(ends[first + done]) if done else 0
                ends[first + 1 : first + 1 + done] += base
                base += used
                columns.resize(used, refcheck=False)
                values.resize(used, refcheck=False)
                found.append((columns, values))
                first += done
                space = max(space, needed.value)

        bounds = self._shared(texts, work)
        if context.any():
            return self.rows(texts.with_lowered(np.flatnonzero(context).tolist()))
        total = 0
        for first, last in bounds if len(bounds) > 1 else ():
            ends[first + 1 : last + 1] += total
            total = int(ends[last])
        every = [part for at in range(len(bounds)) for part in parts[at]]
        columns, values = every[0] if len(every) == 1 else map(np.concatenate, zip(*every, strict=True))
        return columns, values.astype(self.operation.dtype, copy=False), ends

    def _shared(self, texts: Texts, work: Callable[[int, int, int], None]) -> list[tuple[int, int]]:
        """Do work on ranges of rows, on several threads where there is enough; the ranges."""
        pool = self._library.pool
        count = 1 if pool is None else max(1, min(4 * pool.threads, texts.size // _CHUNK, texts.rows))
        edges = [texts.rows * i // count for i in range(count + 1)]
        bounds = list(itertools.pairwise(edges))
        if pool is None or count == 1:
            work(0, 0, texts.rows)
        else:
            pool.run(lambda i: work(i, *bounds[i]), count)
        return bounds

    def _loaded(self) -> int:
        """Where the operation is laid out."""
        if self._text is None:
            self._load_once()
        return self._address

    def _load_once(self) -> None:
        # Another thread may be in a call with what it loaded, which must not be replaced.
        with self._lock:
            if self._text is None:
                self._load()

    def _load(self) -> None:
        """Lay out the operation for the code."""
        operation, keep = self.operation, list[Any]()
        analyzer, tables = operation.analyzer, operation.characters

        def pointer(array: np.ndarray | None) -> int | None:
            if array is None:
                return None
            array = np.ascontiguousarray(array)
            keep.append(array)
            return address_of(array)

        stop = analyzer.stop_words if analyzer.kind == "word" else ()
        slots, pool = self._slots(operation.vocabulary, stop)
        ascii_classes = tables.classes[tables.class_page[0]][:128]
        words = ascii_classes[ascii_classes & WORD != 0]
        wanted = WORD if analyzer.whole else TOKEN
        stages = (StageFields * max(1, len(operation.stages)))()
        for place, stage in zip(stages, operation.stages, strict=False):
            place.kind = _STAGES[stage.kind]
            place.scale = pointer(stage.values) if stage.kind == "scale" else None
            place.place = pointer(stage.values) if stage.kind == "select" else None
        keep.append(stages)
        text = TextFields(
            analyzer=_ANALYZERS[analyzer.kind],
            whole=analyzer.whole,
            least=analyzer.least,
            shortest=analyzer.shortest,
            longest=analyzer.longest,
            lowercase=analyzer.lowercase,
            plain=bool((words & TOKEN != 0).all()),
            token_ranges=pointer(_ranges(ascii_classes & wanted != 0)),
            space_ranges=pointer(_ranges(ascii_classes & SPACE != 0)),
            class_page=pointer(tables.class_page),
            classes=pointer(tables.classes),
            map_page=pointer(tables.map_page) if len(tables.map_page) else None,
            maps=pointer(tables.maps),
            expansions=pointer(tables.expansions),
            hashed=operation.hashed,
            alternate_sign=operation.alternate_sign,
            stop_words=bool(stop),
            slots=pointer(slots),
            bits=len(slots).bit_length() - 1,
            pool=pointer(pool),
            stages=len(operation.stages),
            stage=ctypes.addressof(stages),
            ahead=stages[0].scale,
            terms=operation.terms,
            width=operation.columns,
            outputs=operation.width,
            weight=pointer(operation.weight),
        )
        # The last of all, as other threads ask for it first.
        self._keep, self._address = keep, ctypes.addressof(text)
        self._text = text

    def _slots(self, vocabulary: Terms | None, stop: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The table of terms and stop words, and their bytes."""
        known, more = vocabulary or Terms.of(()), Terms.of(stop)
        starts = np.concatenate([known.starts, more.starts[1:] + known.starts[-1]]).astype(np.uint32)
        pool = np.concatenate([known.pool, more.pool, np.zeros(PADDING, np.uint8)])
        slots = np.zeros(1 << (2 * len(starts)).bit_length(), _SLOT)
        slots["column"] = -1
        self._library.functions().fill(
            address_of(slots), len(slots).bit_length() - 1, address_of(pool), address_of(starts),
            len(starts) - 1, len(known),
        )  # fmt: skip
        return slots, pool


def _ranges(members: np.ndarray) -> np.ndarray:
    """How many ranges of characters there are, then the first and last of each: uint8."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], members, [False]])))
    edges[1::2] -= 1
    return np.concatenate([[len(edges) // 2], edges]).astype(np.uint8)


class _Space:
    """Room for the entries of one row."""

    def __init__(self, entries: int, dtype: np.dtype) -> None:
        self.entries = entries
        self.columns, self.values = np.empty(entries, np.int32), np.empty(entries, dtype)
        self.addresses = address_of(self.columns), address_of(self.values)


def _input(texts: Texts) -> InputFields:
    return InputFields(
        texts.address,
        texts.offsets,
        texts.wide,
        texts.row_starts,
        texts.values,
    )
