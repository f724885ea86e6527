"""A column of the caller's rows in its container's form: numbers, Python values, Arrow's texts, levels.

Each class returns the column's numbers, codes, or input of `hbtvm.graph.columns.evaluate` with as little work
as its form allows. ``null`` is the meaning of the container's missing value if it is not a number: NaN or
None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.runtime.codes.coder import Coder, is_nan
from hbtvm.runtime.codes.hashes import HashCoder
from hbtvm.runtime.codes.objects import object_codes
from hbtvm.runtime.unreadable import described

if TYPE_CHECKING:
    from hbtvm.runtime.text.objects import ObjectRows
    from hbtvm.runtime.text.reader import TextReader
    from hbtvm.runtime.text.texts import Texts

_EXACT = 1 << 53
_PLAIN = frozenset((float, int, bool))


class Numbers:
    """Numbers in an array.

    `array`: real numbers or bools, shape (n,), any stride; NaN if missing.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its numbers."""
        return self._array.dtype

    def numbers(self, where: str) -> np.ndarray:
        """Return the column as numbers of any dtype, shape (n,).

        Raises `InputError` for other values; `where` names the column.
        """
        return self._array

    def codes(self, coder: Coder | HashCoder) -> np.ndarray:
        """Return the codes of its values, shape (n,)."""
        return coder.of_numbers(self._array)

    def raw(self) -> np.ndarray:
        """Return float32 or float64; integers beyond float64, and other values, stay unchanged."""
        x = self._array
        if x.dtype.kind == "f":
            return x if x.dtype != np.float16 else x.astype(np.float32)
        if x.dtype.kind in "iu" and x.size and not -_EXACT <= int(x.min()) <= int(x.max()) <= _EXACT:
            return x
        return x.astype(np.float64)

    def texts(self, reader: TextReader) -> Texts | ObjectRows:
        """Return its texts, or features.

        Raises `InputError` if it has none.
        """
        raise reader.refuse_type(f"numbers ({self._array.dtype})")


class Values:
    """Python values."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def numbers(self, where: str) -> np.ndarray:
        try:
            x = np.array(self._values, np.float64)
        except Exception:
            x = None
        if x is None or x.ndim != 1:  # texts, or lists
            x = np.array([number(value, where, row) for row, value in enumerate(self._values)], np.float64)
        return x

    def codes(self, coder: Coder | HashCoder) -> np.ndarray:
        return coder.of_values(self._values)

    def raw(self) -> np.ndarray:
        if are_numbers(self._values):
            return np.array(self._values, np.float64)
        out = np.empty(len(self._values), object)
        out[:] = [np.nan if value is not None and is_nan(value) else value for value in self._values]
        return out

    def texts(self, reader: TextReader) -> Texts | ObjectRows:
        return reader.of_values(self._values)


class Objects:
    """Python values in an array.

    `array`: of type ``object``, shape (n,), any stride; or (n, k), if rows are lists of texts.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def _values(self) -> Values:
        return Values(self._array.tolist())

    def numbers(self, where: str) -> np.ndarray:
        return self._values().numbers(where)

    def codes(self, coder: Coder | HashCoder) -> np.ndarray:
        return object_codes(self._array, coder)

    def raw(self) -> np.ndarray:
        return self._values().raw()

    def texts(self, reader: TextReader) -> Texts | ObjectRows:
        return reader.of_values(self._array)


class Text:
    """Texts of Arrow.

    `array`: a pyarrow.Array of strings.
    `null`: see the module.
    """

    def __init__(self, array: Any, null: Any) -> None:
        self._array, self._null = array, null

    def _values(self) -> Values:
        null = self._null
        return Values([null if text is None else text for text in self._array.to_pylist()])

    def numbers(self, where: str) -> np.ndarray:
        return self._values().numbers(where)

    def codes(self, coder: Coder | HashCoder) -> np.ndarray:
        return coder.of_text(self._array, self._null)

    def raw(self) -> np.ndarray:
        return self._values().raw()

    def texts(self, reader: TextReader) -> Texts | ObjectRows:
        return reader.of_arrow(self._array)


class Levels:
    """Positions in a list of values.

    `at`: positions, integers, shape (n,); -1 for missing values.
    `levels`: an object that identifies the list, for caching.
    `values`: returns the list.
    `null`: see the module.
    """

    def __init__(self, at: np.ndarray, levels: Any, values: Callable[[], list[Any]], null: Any) -> None:
        self._at, self._levels, self._values, self._null = at, levels, values, null

    def numbers(self, where: str) -> np.ndarray:
        levels = self._values()
        used = np.unique(self._at)
        table = np.full(len(levels) + 1, np.nan)
        for at in used[used >= 0].tolist():
            table[at] = number(levels[at], where, int((self._at == at).argmax()))
        result: np.ndarray = table[self._at]
        return result

    def codes(self, coder: Coder | HashCoder) -> np.ndarray:
        return coder.of_levels(self._at, self._levels, self._values, self._null)

    def raw(self) -> np.ndarray:
        table = [*self._values(), self._null]
        return Values([table[at] for at in self._at.tolist()]).raw()

    def texts(self, reader: TextReader) -> Texts | ObjectRows:
        table = [*self._values(), self._null]
        return reader.of_values([table[at] for at in self._at.tolist()])


class Unreadable:
    """A column of a type that no model reads."""

    def __init__(self, type_name: str) -> None:
        self._name = type_name

    def numbers(self, where: str) -> np.ndarray:
        """Refused."""
        raise InputError(f"{where}: expected numbers or categories, got {self._name}.")

    def codes(self, coder: Coder | HashCoder) -> np.ndarray:
        """Refused."""
        raise InputError(f"{coder.where}: expected numbers or categories, got {self._name}.")

    def raw(self) -> np.ndarray:
        """Refused."""
        raise InputError(f"expected numbers or categories, got {self._name}.")

    def texts(self, reader: TextReader) -> Texts | ObjectRows:
        """Refused."""
        raise reader.refuse_type(self._name)


class Times(Unreadable):
    """Dates and times, which only steps for them read.

    `array`: datetime64, or Python objects with a time zone, shape (n,).
    """

    def __init__(self, array: np.ndarray, type_name: str) -> None:
        super().__init__(type_name)
        self._array = array

    def raw(self) -> np.ndarray:
        return self._array


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether all Python values are numbers that float64 holds exactly."""
    types = {*map(type, values)}
    if not types <= _PLAIN:
        return False
    return int not in types or all(type(value) is not int or -_EXACT <= value <= _EXACT for value in values)


RawColumn = Numbers | Values | Objects | Text | Levels | Unreadable
"""All have the methods of `Numbers`, which documents them."""


def number(value: Any, where: str, row: int | None = None) -> float:
    """Return a Python value as a number; None and all kinds of NaN are NaN.

    Raises `InputError` if it is not a number; `where` names the column.
    """
    if value is None:
        return np.nan
    try:
        return float(value)
    except Exception:  # from the value's class
        if is_nan(value):
            return np.nan
    place = where if row is None else f"{where}, row {ROW}"
    raise InputError(f"{place}: expected a number, got {described(value, 100)}.", row) from None
