"""Read columns of texts, or of dicts and lists of features, for vectorizers of scikit-learn.

Texts of Arrow are read in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.columns.text import Analyzer
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.text.objects import ObjectRows, read_texts
from hbtvm.runtime.text.texts import Texts, of_strings
from hbtvm.runtime.unreadable import described

_NUMBERS = frozenset((int, float, bool, np.float64, np.float32, np.int64, np.int32, np.bool_))


class TextReader:
    """Reads a column as a vectorizer of scikit-learn does.

    `analyzer`: the vectorizer's analyzer.
    `where`: the column, for errors.
    `library`: the code that reads objects.
    """

    def __init__(self, analyzer: Analyzer, where: str, library: TextLibrary) -> None:
        self._analyzer, self._where, self._library = analyzer, where, library
        self._pairs = analyzer.kind == "pairs"

    def of_values(self, values: Sequence[Any] | np.ndarray) -> Texts | ObjectRows:
        """Return Python values as texts, shape (n,), or features; strings may also have the shape (n, k).

        Raises `InputError` if a value is not a text, naming its row.
        """
        if self._pairs:
            analyzer = self._analyzer
            return ObjectRows(values, analyzer.form, analyzer.separator, lambda: self._of_features(values))
        read = read_texts(self._library, values)
        if read is not None:
            return read
        try:
            return of_strings(list(values))
        except TypeError:
            return of_strings([self.decoded(value, row) for row, value in enumerate(values)])

    def decoded(self, value: Any, row: int | None = None) -> str:
        """Return a Python text, which may be bytes; errors as in `of_values`."""
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bytes):
            try:
                return value.decode(self._analyzer.encoding, self._analyzer.decode_error)
            except (UnicodeDecodeError, LookupError) as error:
                raise InputError(
                    f"{self._place(row)}: the bytes of a text can't be read: {error}.", row
                ) from None
        raise self.refused(value, row)

    def refused(self, value: Any, row: int | None) -> InputError:
        """Return the error for a value that is not a text."""
        kind = "" if value is None else f" ({type(value).__name__})"
        return InputError(f"{self._place(row)}: expected a text, got {described(value)}{kind}.", row)

    def refuse_type(self, name: str) -> InputError:
        """Return the error for a column of a type without texts."""
        kind = "dicts or lists of features" if self._pairs else "texts"
        return InputError(f"{self._where}: expected {kind}, got {name}.")

    def of_arrow(self, array: Any) -> Texts:
        """Return texts of Arrow without a copy; errors as in `of_values`."""
        if self._pairs:
            raise self.refuse_type("texts")
        if array.null_count:
            row = next(row for row, text in enumerate(array) if not text.is_valid)
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
        return self._where if row is None else f"{self._where}, row {ROW}"

    def _of_features(self, values: Sequence[Any] | np.ndarray) -> Texts:
        rows: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values
        form = self._analyzer.form
        usual = {dict} if form in ("dict", "features") else {list, tuple}
        for row, one in enumerate(rows) if not {*map(type, rows)} <= usual else ():
            mapping = isinstance(one, Mapping)
            if isinstance(one, str | bytes) or mapping != (form in ("dict", "features")):
                expected = "a dict" if form in ("dict", "features") else "a list of features"
                raise InputError(f"{self._place(row)}: expected {expected}, got {described(one)}.", row)
        try:
            return self._plain(rows) or self._one_by_one(rows)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{self._where}: features can't be read: {error}.") from None

    def _plain(self, rows: Sequence[Any]) -> Texts | None:
        """Return rows of names, of names with nonzero numbers, or of names with texts; None for others."""
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
            entries = list(chain.from_iterable([features.values() for features in rows]))
            types = {*map(type, entries)}
            if types == {str}:
                separator = self._analyzer.separator
                names = [f"{name}{separator}{value}" for features in rows for name, value in features.items()]
            elif types <= _NUMBERS:
                values = np.array(entries, np.float64)
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
        """Yield the terms of a row with their counts."""
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
                raise TypeError(f"feature {name!r:.60} has values that are not texts")
            yield f"{name}{self._analyzer.separator}{value}", 1.0
