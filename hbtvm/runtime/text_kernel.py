"""Calls the compiled code that cuts texts into terms; what is passed there is as `text.c` declares it."""

from __future__ import annotations

import ctypes
import itertools
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph.text import Terms, Vectorize
from hbtvm.runtime.texts import Texts, address_of, of_strings
from hbtvm.runtime.threads import ThreadPool

_ANALYZERS = {"word": 0, "char": 1, "char_wb": 2, "pairs": 3}
_STAGES = {"binary": 0, "logarithm": 1, "scale": 2, "l1": 3, "l2": 4, "max": 5, "select": 6}
_PADDING = 16
"""Bytes behind texts that may be read."""

_CHUNK = 1 << 16
"""Bytes of texts that are worth a thread of their own."""

_BRIEF = 1 << 12
"""Up to so many bytes, the interpreter stays locked: to give it back and get it again may take longer."""

_VERSION = 1
"""That of `text.c`: what its functions take."""

_SLOT = np.dtype([("tag", np.uint32), ("column", np.int32), ("start", np.uint32), ("size", np.uint32)])

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


class _Stage(ctypes.Structure):
    _fields_ = (("kind", _I64), ("scale", _POINTER), ("place", _POINTER))


class _Text(ctypes.Structure):
    _fields_ = (
        ("analyzer", _I64), ("whole", _I64), ("least", _I64), ("shortest", _I64), ("longest", _I64),
        ("lowercase", _I64), ("class_page", _POINTER), ("classes", _POINTER), ("map_page", _POINTER),
        ("maps", _POINTER), ("expansions", _POINTER), ("hashed", _I64), ("alternate_sign", _I64),
        ("stop_words", _I64), ("slots", _POINTER), ("mask", ctypes.c_uint64), ("pool", _POINTER),
        ("stages", _I64), ("stage", _POINTER), ("ahead", _POINTER), ("width", _I64), ("outputs", _I64),
        ("weight", _POINTER),
    )  # fmt: skip


class _Input(ctypes.Structure):
    _fields_ = (
        ("bytes", _POINTER), ("offsets", _POINTER), ("wide", _I64), ("rows", _POINTER), ("values", _POINTER),
    )  # fmt: skip


class TextLibrary:
    """The compiled code of a package, loaded when it is first called.

    Parameters
    ----------
    code
        The shared library.
    pool
        Threads that share long calls; None for the calling thread alone.
    """

    def __init__(self, code: bytes, pool: ThreadPool | None = None) -> None:
        self._code, self.pool = code, pool
        self._functions: tuple[Any, ...] | None = None

    def functions(self) -> tuple[Any, ...]:
        """The functions for sums, sparse rows, one text, and to fill a table.

        Raises
        ------
        PackageError
            If they can't be loaded, or take other arguments than this release passes.
        """
        if self._functions is None:
            with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
                path = Path(folder, "text.so")
                try:
                    path.write_bytes(self._code)
                    released, locked = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
                    sums, rows = released.hbtvm_text_sums, released.hbtvm_text_rows
                    one, fill = locked.hbtvm_text_one, released.hbtvm_text_fill
                    version = int(released.hbtvm_text_version())
                except (OSError, AttributeError) as error:
                    reason = str(error).replace(str(path), "it")
                    raise PackageError(
                        f"the library for texts can't be loaded from {folder}: {reason}."
                    ) from None
            if version != _VERSION:
                raise PackageError(
                    f"the library for texts has version {version}, but this hbtvm calls version {_VERSION}; "
                    "compile the model again"
                )
            sums.argtypes = [_POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER]
            rows.argtypes = [_POINTER, _POINTER, _I64, _I64, _I64, *[_POINTER] * 5]
            one.argtypes = [_POINTER, ctypes.c_char_p, _I64, _POINTER]
            fill.argtypes = [_POINTER, ctypes.c_uint64, _POINTER, _POINTER, _I64, _I64]
            sums.restype = rows.restype = one.restype = _I64
            fill.restype = None
            self._functions = sums, rows, one, fill
        return self._functions


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
        self._text: _Text | None = None
        self._address = 0
        self._keep: list[Any] = []
        self._lock = threading.Lock()
        self._row = ctypes.c_double * self.width

    def one(self, text: str) -> np.ndarray:
        """The columns, or weighted sums, of one text: float64, shape (1, width)."""
        if self._text is None:
            self._load_once()
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > _BRIEF:
            return self.sums(of_strings([text]))
        out = self._row()
        waiting = self._library.functions()[2](self._address, data, len(data), out)
        if waiting:
            if waiting < 0:
                raise MemoryError
            return self.sums(of_strings([text]))
        row: np.ndarray = np.frombuffer(out, np.float64).reshape(1, self.width)  # type: ignore[call-overload]
        return row

    def sums(self, texts: Texts) -> np.ndarray:
        """The columns, or weighted sums, of texts: float64, shape (rows, width)."""
        text, call = self._loaded(0)
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

    def rows(self, texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sparse rows: columns (int32) and values (float64) of all entries, and where rows start (int64)."""
        text, call = self._loaded(1)
        context = np.zeros(texts.rows, np.uint8)
        given = _input(texts)
        parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        ends = np.zeros(texts.rows + 1, np.int64)

        def work(at: int, first: int, last: int) -> None:
            found = parts[at] = []
            needed, base, space = _I64(), 0, max(256, texts.size * (last - first) // (4 * texts.rows))
            while first < last:
                columns, values = np.empty(space, np.int32), np.empty(space)
                done = call(
                    text, ctypes.byref(given), first, last, space, address_of(columns), address_of(values),
                    address_of(ends) + 8 * (first + 1), address_of(context) + first, ctypes.byref(needed),
                )  # fmt: skip
                if done < 0:
                    raise MemoryError
                used = int(ends[first + done]) if done else 0
                ends[first + 1 : first + 1 + done] += base
                base += used
                found.append((columns[:used], values[:used]))
                first += done
                space = max(space, needed.value)

        bounds = self._shared(texts, work)
        if context.any():
            return self.rows(texts.with_lowered(np.flatnonzero(context).tolist()))
        total = 0
        for first, last in bounds:
            ends[first + 1 : last + 1] += total
            total = int(ends[last])
        every = [part for at in range(len(bounds)) for part in parts[at]]
        return (
            np.concatenate([np.zeros(0, np.int32), *(columns for columns, _ in every)]),
            np.concatenate([np.zeros(0), *(values for _, values in every)]),
            ends,
        )

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

    def _loaded(self, function: int) -> tuple[Any, Any]:
        if self._text is None:
            self._load_once()
        return self._address, self._library.functions()[function]

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
        stages = (_Stage * max(1, len(operation.stages)))()
        for place, stage in zip(stages, operation.stages, strict=False):
            place.kind = _STAGES[stage.kind]
            place.scale = pointer(stage.values) if stage.kind == "scale" else None
            place.place = pointer(stage.values) if stage.kind == "select" else None
        keep.append(stages)
        text = _Text(
            analyzer=_ANALYZERS[analyzer.kind],
            whole=analyzer.whole,
            least=analyzer.least,
            shortest=analyzer.shortest,
            longest=analyzer.longest,
            lowercase=analyzer.lowercase,
            class_page=pointer(tables.class_page),
            classes=pointer(tables.classes),
            map_page=pointer(tables.map_page) if len(tables.map_page) else None,
            maps=pointer(tables.maps),
            expansions=pointer(tables.expansions),
            hashed=operation.hashed,
            alternate_sign=operation.alternate_sign,
            stop_words=bool(stop),
            slots=pointer(slots),
            mask=len(slots) - 1,
            pool=pointer(pool),
            stages=len(operation.stages),
            stage=ctypes.addressof(stages),
            ahead=stages[0].scale,
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
        pool = np.concatenate([known.pool, more.pool, np.zeros(_PADDING, np.uint8)])
        slots = np.zeros(1 << (2 * len(starts)).bit_length(), _SLOT)
        slots["column"] = -1
        self._library.functions()[3](
            address_of(slots),
            len(slots) - 1,
            address_of(pool),
            address_of(starts),
            len(starts) - 1,
            len(known),
        )
        return slots, pool


def _input(texts: Texts) -> _Input:
    return _Input(
        texts.address,
        texts.offsets,
        texts.wide,
        None if texts.row_starts is None else address_of(texts.row_starts),
        None if texts.values is None else address_of(texts.values),
    )
