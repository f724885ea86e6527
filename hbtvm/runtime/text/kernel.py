"""Call the compiled code that cuts texts into terms, with the arguments that `text.c` declares."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.graph.columns.text import Vectorize
from hbtvm.runtime.text.layout import laid_out
from hbtvm.runtime.text.library import InputFields, TextFields, TextLibrary
from hbtvm.runtime.text.objects import ObjectRows
from hbtvm.runtime.text.texts import Texts, address_of, of_strings

_CHUNK = 1 << 16  # fewest bytes of texts for a thread

_BRIEF = 1 << 12
"""Most bytes for which the interpreter stays locked: releasing and taking its lock may take longer."""

_TYPES = {"float64": 0, "float32": 1, "int64": 2}
"""Types in which the code writes values; others are converted from float64."""

_I64 = ctypes.c_int64

_LOCKED = 1 << 13  # rows of Python objects read before other Python threads may run
_FAILED = -1  # status: no memory
_ENTRIES = 512  # initial capacity of a row


class TextKernel:
    """A vectorizer's tables with the code that reads them; several threads may call it at once.

    `operation`: the operation.
    """

    def __init__(self, library: TextLibrary, operation: Vectorize) -> None:
        self._library, self.operation = library, operation
        self.width = operation.width
        self._text: TextFields | None = None
        self._address = 0
        self._keep: list[Any] = []
        self._lock = threading.Lock()
        self._row = ctypes.c_double * self.width
        # The type of entries, and their most number per byte of a text.
        self._as_written = operation.dtype in _TYPES
        self._written = np.dtype(operation.dtype if self._as_written else "float64")
        self._kind = _TYPES[self._written.name]
        analyzer = operation.analyzer
        lengths = min(analyzer.longest - analyzer.shortest + 1, 8)
        self._per_byte = lengths / 4 if analyzer.kind == "word" else float(lengths)
        self._spaces: list[_Space] = []

    def of_text(self, text: str) -> np.ndarray:
        """Return the columns, or weighted sums, of a text: float64, shape (1, width)."""
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

    def sums(self, texts: Texts | ObjectRows) -> np.ndarray:
        """Return the columns, or weighted sums, of texts: float64, shape (rows, width)."""
        if isinstance(texts, ObjectRows):
            sums = self._object_sums(texts)
            if sums is not None:
                return sums
            texts = texts.plain()
        text, call = self._loaded(), self._library.functions().sums
        out = np.empty((texts.rows, self.width))
        context = np.zeros(texts.rows, np.uint8)
        source, waiting = _input(texts), [0]
        address, marks, row = address_of(out), address_of(context), 8 * self.width

        def work(first: int, last: int) -> None:
            done = call(text, ctypes.byref(source), first, last, address + first * row, marks + first)
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
        """Return columns (int32) and values of a short text's entries; None for a longer text."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > _BRIEF:
            return None
        address, call = self._loaded(), self._library.functions().one_row
        space = self._space()
        used = call(address, data, len(data), self._kind, space.entries, *space.addresses)
        if used < 0:
            if used == _FAILED:
                raise MemoryError
            return self.row(text.lower())
        if used > space.entries:
            self._spaces.append(_Space(int(used), self._written))
            return self.row(text)
        return self._taken(space, used)

    def object_row(self, row: ObjectRows) -> tuple[np.ndarray, np.ndarray] | None:
        """Return `row`'s result for a single row of Python objects; None if `rows` has to compute it."""
        if row.arguments is None:
            return None
        address, call = self._loaded(), self._library.functions().object_rows
        space = self._space()
        used, needed = _I64(), _I64()
        done = call(
            address, *row.arguments, 0, 1, self._kind, space.entries, *space.addresses, ctypes.byref(used),
            ctypes.byref(needed),
        )  # fmt: skip
        return self._taken(space, used.value) if done == 1 else None

    def _space(self) -> _Space:
        """Return unused memory for a row."""
        # A list's pop and append are atomic, so threads never share it.
        try:
            return self._spaces.pop()
        except IndexError:
            return _Space(_ENTRIES, self._written)

    def _taken(self, space: _Space, entries: int) -> tuple[np.ndarray, np.ndarray]:
        columns, values = space.columns[:entries].copy(), space.values[:entries].copy()
        self._spaces.append(space)
        return columns, values if self._as_written else values.astype(self.operation.dtype)

    def _object_sums(self, rows: ObjectRows) -> np.ndarray | None:
        if rows.arguments is None:
            return None
        out = np.empty((rows.rows, self.width))
        address, call, start = self._loaded(), self._library.functions().object_sums, address_of(out)
        for first in range(0, rows.rows, _LOCKED):
            last = min(first + _LOCKED, rows.rows)
            done = call(address, *rows.arguments, first, last, start + 8 * self.width * first)
            if done == _FAILED:
                raise MemoryError
            if done:
                return None
        return out

    def _object_rows(self, rows: ObjectRows) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return `rows`' result; None if Python has to read the objects."""
        if rows.arguments is None:
            return None
        address, call = self._loaded(), self._library.functions().object_rows
        ends, needed, first, used = np.zeros(rows.rows + 1, np.int64), _I64(), 0, 0
        parts, space = [], 0
        while first < rows.rows:
            last = min(first + _LOCKED, rows.rows)
            # Estimated from the entries per row so far, plus a margin.
            expected = 9 * used // (8 * first) + 1 if first else 16
            space = max(needed.value, expected * (last - first))
            columns, values = np.empty(space, np.int32), np.empty(space, self._written)
            done = call(
                address, *rows.arguments, first, last, self._kind, space, address_of(columns),
                address_of(values), address_of(ends) + 8 * (first + 1), ctypes.byref(needed),
            )  # fmt: skip
            if done == _FAILED:
                raise MemoryError
            if done < 0:
                return None
            ends[first + 1 : first + 1 + done] += used
            first += done
            count, used = int(ends[first]) - used, int(ends[first])
            columns.resize(count, refcheck=False)
            values.resize(count, refcheck=False)
            parts.append((columns, values))
        columns, values = _joined(parts)
        return columns, values.astype(self.operation.dtype, copy=False), ends

    def rows(self, texts: Texts | ObjectRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sparse rows: columns (int32) and values of all entries, and starts of rows (int64)."""
        if isinstance(texts, ObjectRows):
            result = self._object_rows(texts)
            if result is not None:
                return result
            texts = texts.plain()
        text, call, source = self._loaded(), self._library.functions().rows, _input(texts)
        context = np.zeros(texts.rows, np.uint8)
        parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        ends = np.zeros(texts.rows + 1, np.int64)
        expected = texts.texts if self.operation.analyzer.kind == "pairs" else texts.size * self._per_byte

        def work(at: int, first: int, last: int) -> None:
            chunks = parts[at] = []
            needed, base, space = _I64(), 0, max(256, int(expected * (last - first) / texts.rows))
            while first < last:
                columns, values = np.empty(space, np.int32), np.empty(space, self._written)
                done = call(
                    text, ctypes.byref(source), first, last, self._kind, space, address_of(columns),
                    address_of(values), address_of(ends) + 8 * (first + 1), address_of(context) + first,
                    ctypes.byref(needed),
                )  # fmt: skip
                if done == _FAILED:
                    raise MemoryError
                used = int(ends[first + done]) if done else 0
                ends[first + 1 : first + 1 + done] += base
                base += used
                columns.resize(used, refcheck=False)
                values.resize(used, refcheck=False)
                chunks.append((columns, values))
                first += done
                space = max(space, needed.value)

        bounds = self._shared(texts, work)
        if context.any():
            return self.rows(texts.with_lowered(np.flatnonzero(context).tolist()))
        total = 0
        for first, last in bounds if len(bounds) > 1 else ():
            ends[first + 1 : last + 1] += total
            total = int(ends[last])
        ordered = [part for at in range(len(bounds)) for part in parts[at]]
        columns, values = _joined(ordered)
        return columns, values.astype(self.operation.dtype, copy=False), ends

    def _shared(self, texts: Texts, work: Callable[[int, int, int], None]) -> list[tuple[int, int]]:
        """Run work on ranges of rows, on several threads if there is enough; return the ranges."""
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
        """Return the address of the operation's structure."""
        if self._text is None:
            self._load_once()
        return self._address

    def _load_once(self) -> None:
        # Do not replace a structure that another thread may be using.
        with self._lock:
            if self._text is None:
                text, self._keep = laid_out(self.operation, self._library)
                # Set last, because other threads check it first.
                self._address = ctypes.addressof(text)
                self._text = text


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([part for part, _ in parts]), np.concatenate([part for _, part in parts])


class _Space:
    """Memory for the entries of a row."""

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
