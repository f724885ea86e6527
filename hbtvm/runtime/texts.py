"""Columns of texts, or of dicts and lists of features, as UTF-8 and offsets: what a kernel for texts reads.

Texts of Arrow are read where they lie.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.text import Analyzer
from hbtvm.runtime.raw import RawColumn

_NUMBERS = frozenset((int, float, bool, np.float64, np.float32, np.int64, np.int32, np.bool_))


def address_of(array: np.ndarray) -> int:
    """Where an array's memory begins. (numpy's ``ctypes`` makes an object first.)"""
    address: int = array.__array_interface__["data"][0]
    return address


class Texts:
    """Texts, one behind the other.

    Attributes
    ----------
    rows
        How many rows there are: of one text each, or those of `row_starts`.
    address
        Where the bytes begin.
    offsets
        Where the offsets begin: text i is from offset i to offset i + 1.
    wide
        Whether offsets are of 64 bits, rather than 32.
    row_starts
        Row i has the texts ``row_starts[i]`` to ``row_starts[i + 1]``, int64, each a term; None for one each.
    values
        What each term counts, float64; None for 1.
    size
        Bytes in all.
    """

    def __init__(
        self,
        rows: int,
        address: int,
        offsets: int,
        wide: bool,
        keep: Any,
        row_starts: np.ndarray | None = None,
        values: np.ndarray | None = None,
    ) -> None:
        self.rows, self.address, self.offsets, self.wide = rows, address, offsets, wide
        self.row_starts, self.values = row_starts, values
        self._keep = keep
        texts = rows if row_starts is None else int(row_starts[-1])
        self.size = self._offset(texts) - self._offset(0)

    def _offset(self, at: int) -> int:
        kind, size = (ctypes.c_int64, 8) if self.wide else (ctypes.c_int32, 4)
        return int(kind.from_address(self.offsets + size * at).value)

    def text(self, row: int) -> str:
        """One of the texts."""
        first, end = self._offset(row), self._offset(row + 1)
        data = ctypes.string_at(self.address + first, end - first)
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # of Arrow, which does not look
            return data.decode("utf-8", "replace")

    def lowered(self, rows: Sequence[int]) -> Texts:
        """Some of the texts, in lower case."""
        return of_strings([self.text(row).lower() for row in rows])

    def with_lowered(self, rows: Sequence[int]) -> Texts:
        """All of the texts, some of them in lower case."""
        every = [self.text(row) for row in range(self.rows)]
        for row in rows:
            every[row] = every[row].lower()
        return of_strings(every)


def of_strings(
    texts: Sequence[str | bytes], row_starts: np.ndarray | None = None, values: np.ndarray | None = None
) -> Texts:
    """Strings; those that are terms (`row_starts`) may be bytes, which are UTF-8.

    Raises
    ------
    TypeError
        If there are others.
    """
    data, lengths = b"", None
    try:
        joined = "".join(texts)  # type: ignore[arg-type]
        if joined.isascii():
            data, lengths = joined.encode(), np.fromiter(map(len, texts), np.int64, len(texts))
    except TypeError:
        if row_starts is None or not all(isinstance(one, str | bytes) for one in texts):
            raise
    if lengths is None:
        parts = [one if isinstance(one, bytes) else one.encode("utf-8", "surrogatepass") for one in texts]
        data, lengths = b"".join(parts), np.fromiter(map(len, parts), np.int64, len(parts))
    offsets = np.empty(len(lengths) + 1, np.int64)
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    rows = len(lengths) if row_starts is None else len(row_starts) - 1
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
    return Texts(rows, address, address_of(offsets), True, (data, offsets), row_starts, values)


class TextReader:
    """Reads a column as a vectorizer of scikit-learn's would.

    Parameters
    ----------
    analyzer
        What it expects.
    where
        The column, for errors.
    """

    def __init__(self, analyzer: Analyzer, where: str) -> None:
        self._analyzer, self._where = analyzer, where
        self._pairs = analyzer.kind == "pairs"

    def read(self, column: RawColumn) -> Texts:
        """The column's texts.

        Raises
        ------
        InputError
            If a value is none, naming its row.
        """
        return column.texts(self)

    def of_values(self, values: Sequence[Any]) -> Texts:
        """Python values as texts; see `read`."""
        if self._pairs:
            return self._of_features(values)
        try:
            return of_strings(values)
        except TypeError:
            return of_strings([self.decoded(one, row) for row, one in enumerate(values)])

    def decoded(self, value: Any, row: int | None = None) -> str:
        """A text of Python, which may be given as bytes; see `read`."""
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bytes):
            try:
                return value.decode(self._analyzer.encoding, self._analyzer.decode_error)
            except (UnicodeDecodeError, LookupError) as error:
                raise InputError(f"{self._place(row)}: the bytes of a text can't be read: {error}.") from None
        raise self.refused(value, row)

    def refused(self, value: Any, row: int | None) -> InputError:
        """The error for a value that is no text."""
        kind = "" if value is None else f" ({type(value).__name__})"
        return InputError(f"{self._place(row)}: expected a text, got {value!r:.60}{kind}.")

    def refuse_type(self, name: str) -> InputError:
        """The error for a column of a type that has no texts."""
        what = "dicts or lists of features" if self._pairs else "texts"
        return InputError(f"{self._where}: expected {what}, got {name}.")

    def of_arrow(self, array: Any) -> Texts:
        """Texts of Arrow, without a copy; see `read`."""
        if self._pairs:
            raise self.refuse_type("texts")
        if array.null_count:
            row = next(row for row, one in enumerate(array) if not one.is_valid)
            raise self.refused(None, row)
        kind = str(array.type)
        if kind not in ("string", "large_string"):
            array = array.cast("large_string")
        wide = kind != "string"
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return of_strings([])
        address = 0 if data is None else data.address
        return Texts(len(array), address, offsets.address + array.offset * (8 if wide else 4), wide, array)

    def _place(self, row: int | None) -> str:
        return self._where if row is None else f"{self._where}, row {row}"

    def _of_features(self, rows: Sequence[Any]) -> Texts:
        form = self._analyzer.form
        usual = {dict} if form in ("dict", "features") else {list, tuple}
        for row, one in enumerate(rows) if not {*map(type, rows)} <= usual else ():
            mapping = isinstance(one, Mapping)
            if isinstance(one, str | bytes) or mapping != (form in ("dict", "features")):
                expected = "a dict" if form in ("dict", "features") else "a list of features"
                raise InputError(f"{self._place(row)}: expected {expected}, got {one!r:.60}.")
        try:
            return self._plain(rows) or self._one_by_one(rows)
        except (TypeError, ValueError) as error:
            raise InputError(f"{self._where}: features can't be read: {error}.") from None

    def _plain(self, rows: Sequence[Any]) -> Texts | None:
        """Rows of names alone, of names with numbers that are not 0, or of names with texts."""
        form = self._analyzer.form
        if form == "pair":
            return None
        try:
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        except TypeError:
            return None
        names: list[str | bytes] = []
        values = None
        if form != "string":
            given = list(chain.from_iterable([one.values() for one in rows]))
            types = {*map(type, given)}
            if types == {str}:
                separator = self._analyzer.separator
                names = [f"{name}{separator}{value}" for one in rows for name, value in one.items()]
            elif types <= _NUMBERS:
                values = np.array(given, np.float64)
                if form == "dict" and not values.all():
                    return None
            else:
                return None
        names = names or list(chain.from_iterable(rows))
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return of_strings(names, starts, values)

    def _one_by_one(self, rows: Sequence[Any]) -> Texts:
        names: list[str | bytes] = []
        values: list[float] = []
        starts = [0]
        for row in rows:
            for name, value in self._pairs_of(row):
                names.append(name)
                values.append(value)
            starts.append(len(names))
        return of_strings(names, np.array(starts, np.int64), np.array(values, np.float64))

    def _pairs_of(self, row: Any) -> Iterable[tuple[str | bytes, float]]:
        """The terms of a row with what they count."""
        form, separator = self._analyzer.form, self._analyzer.separator
        if form == "string":
            yield from ((name, 1.0) for name in row)
            return
        for name, value in row.items() if form != "pair" else row:
            if isinstance(value, str):
                yield f"{name}{separator}{value}", 1.0
            elif form != "features":
                if value != 0:
                    yield name, float(value)
            elif value is None or isinstance(value, Number):
                yield name, np.nan if value is None else float(value)  # type: ignore[arg-type]
            elif isinstance(value, Mapping) or not isinstance(value, Iterable):
                raise TypeError(f"feature {name!r:.60} is a {type(value).__name__}")
            else:
                yield from self._several(name, value)

    def _several(self, name: Any, values: Iterable[Any]) -> Iterable[tuple[str, float]]:
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"feature {name!r:.60} has values that are no texts")
            yield f"{name}{self._analyzer.separator}{value}", 1.0
