"""Codes of a column's values: a feed's steps up to its `Encode`, folded into one lookup per value."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.columns.steps import Encode, Fill, IsMissing, Step, is_missing
from hbtvm.graph.columns.steps import is_nan as steps_is_nan

_FEW = 48  # up to this many texts, Python objects and a dictionary are faster than a call of Arrow

_CODE = np.dtype(np.int32)

_SPAN = 1 << 14  # range of integer categories that are looked up in a table rather than searched for

_LARGE = 1 << 62

_PLAIN = (str, int, float, np.generic)


def folds(steps: Sequence[Step]) -> bool:
    """Return whether steps end in codes, and `Coder` can fold them into one lookup."""
    return (
        bool(steps)
        and isinstance(steps[-1], Encode)
        and all(isinstance(step, Fill | IsMissing) for step in steps[:-1])
    )


def is_nan(value: Any) -> bool:
    """Return whether a value is a missing number: NaN of any type, or pandas' NA, which is read as NaN."""
    return steps_is_nan(value) or type(value).__name__ == "NAType"


class _Codes(dict[Any, int]):
    """Codes by value; -1 for unknown values."""

    def __missing__(self, key: Any) -> int:
        return -1


class Coder:
    """Computes codes of a column's values, equal to those of the steps.

    `steps`: steps for which `folds` is true.
    `table`: codes by known value; values that a step refuses are absent.
    `unknown`: code of values that are not a category.
    """

    def __init__(self, steps: tuple[Step, ...]) -> None:
        encoder = steps[-1]
        assert isinstance(encoder, Encode)
        self._steps, self._encoder = steps[:-1], encoder
        self.unknown, self._refused_code = len(encoder.categories), encoder.refused_code
        missing = [step.missing for step in self._steps if isinstance(step, Fill | IsMissing)]
        values = [value for value in (*encoder.categories, *missing) if value is not None and value == value]
        self._codes: dict[Any, int] = {value: self._code(self._filled(value)) for value in values}
        self._none = self._code(self._filled(None))
        self._nan = self._code(self._filled(math.nan))
        self._other = self._code(self._filled(object()))
        # numpy's NaN is one object, which a dictionary finds though it is not equal to itself.
        everything = {**self._codes, None: self._none, np.nan: self._nan}
        self.table = {value: code for value, code in everything.items() if code != self._refused_code}
        self._quick = _Codes(self.table)
        self._tables: dict[Any, tuple[np.ndarray, np.ndarray, int]] = {}
        self._lookups: dict[Any, tuple[Any, int, np.ndarray | None]] = {}
        self._levels: tuple[Any, Any, np.ndarray] | None = None
        self._dense: dict[np.dtype, np.ndarray | None] = {}

    @property
    def where(self) -> str:
        """The column's name in errors."""
        return self._encoder.where

    def table_of(self, null: Any) -> dict[Any, int]:
        """Return `table`, with the meaning of None in a container that has one kind of missing value."""
        if null is None:
            return self.table
        table = {value: code for value, code in self.table.items() if value is not None}
        if np.nan in table:
            table[None] = table[np.nan]
        return table

    def of_value(self, value: Any, row: int | None = None) -> int:
        """Return the code of a value.

        `row`: its row, for errors.
        Raises `InputError` if its encoder refuses it.
        """
        code = self._of(value)
        if code == self._refused_code:
            raise self._refused(value, row)
        return code

    @property
    def refuses(self) -> bool:
        """Whether unknown or missing values are refused."""
        return self._refused_code >= 0

    def dense(self, dtype: np.dtype) -> tuple[int, np.ndarray, int, int] | None:
        """Return the first category, codes from it on (others' last), NaN's code and the refused code for a
        dtype.

        None if the categories are not integers close together. The refused code is -1 if nothing is refused.
        """
        keys, codes, nan = self._numbers(dtype)
        table = self._dense_table(keys, codes) if len(keys) else None
        if table is None:
            return None
        return int(keys[0]), table, nan, self._refused_code

    @property
    def fills(self) -> bool:
        """Whether steps change values before the lookup."""
        return bool(self._steps)

    def of_values(self, values: list[Any]) -> np.ndarray:
        """Return the codes of Python values, float64, shape (n,).

        Raises `InputError` if the encoder refuses a value.
        """
        try:
            codes = np.fromiter(map(self._quick.__getitem__, values), np.float64, len(values))
        except TypeError:  # an unhashable value
            return np.array([self.of_value(value, row) for row, value in enumerate(values)], np.float64)
        for row in np.flatnonzero(codes < 0).tolist():
            codes[row] = self.of_value(values[row], row)
        return codes

    def of_numbers(self, x: np.ndarray) -> np.ndarray:
        """Return the codes of an array of numbers, int32, shape (n,); integers are compared exactly.

        Raises `InputError` if the encoder refuses a value.
        """
        if x.dtype.kind == "b":
            x = x.view(np.uint8)
        elif x.dtype == np.float16:
            x = x.astype(np.float32)
        elif x.dtype == np.uint64 and x.size and int(x.max()) > np.iinfo(np.int64).max:
            return self.of_values(x.tolist()).astype(_CODE)
        keys, codes, nan = self._numbers(x.dtype)
        if not len(keys):
            result = np.full(x.shape, codes[-1], _CODE)
        else:
            if x.dtype.kind in "iu":
                x = x.astype(np.int64, copy=False)
            table = self._dense_table(keys, codes)
            if table is not None:
                whole = x
                if x.dtype.kind == "f":
                    with np.errstate(invalid="ignore"):
                        whole = x.astype(np.int64)
                    # NaN, fractions and values beyond int64 equal no integer.
                    whole = np.where(whole == x, whole, int(keys[0]) - 1)
                # Values below the first wrap around to large numbers.
                away = (whole - int(keys[0])).view(np.uint64)
                result = table[np.minimum(away, len(table) - 1).view(np.int64)]
            else:
                at = np.searchsorted(keys, x)
                at[at == len(keys)] = 0
                result = np.where(keys[at] == x, codes[at], codes[-1])
        if x.dtype.kind == "f":
            result[np.isnan(x)] = nan
        return self._checked(result, lambda row: x[row].item())

    def _dense_table(self, keys: np.ndarray, codes: np.ndarray) -> np.ndarray | None:
        """Return the codes of the integers from the first key on; the last is that of other values.

        None if there are too many, or a key is not an integer.
        """
        kind = keys.dtype
        if kind not in self._dense:
            table = None
            # Bounds within which differences do not overflow.
            small = np.all((keys > -_LARGE) & (keys < _LARGE))
            if small and np.all(keys == np.trunc(keys)) and keys[-1] - keys[0] < _SPAN:
                table = np.full(int(keys[-1] - keys[0]) + 2, codes[-1], _CODE)
                table[(keys - keys[0]).astype(np.int64)] = codes[: len(keys)]
            self._dense[kind] = table
        return self._dense[kind]

    def of_levels(
        self, at: np.ndarray, levels: Any, values: Callable[[], list[Any]], null: Any
    ) -> np.ndarray:
        """Return the codes of values that are positions in a list, int32, shape (n,).

        `at`: positions, integers, shape (n,); -1 for missing values.
        `levels`: an object that identifies the list, for caching.
        `values`: returns the list.
        `null`: what no value means: NaN or None.
        """
        known = self._levels
        if known is None or known[0] is not levels or known[1] is not null:
            codes = [self._of(value) for value in values()]
            known = levels, null, np.array([*codes, self._of(null)], _CODE)
            self._levels = known
        return self._checked(known[2][at], lambda row: [*values(), null][at[row]])

    def of_text(self, array: Any, null: Any) -> np.ndarray:
        """Return the codes of Arrow's texts, shape (n,), without creating Python objects.

        `array`: a pyarrow.Array of strings.
        `null`: what no value means: NaN or None.
        """
        if len(array) <= _FEW:
            values = array.to_pylist()
            return self.of_values(
                [null if text is None else text for text in values] if array.null_count else values
            )
        if str(array.type) == "string_view":
            array = array.cast("large_string")
        options, none, codes = self._lookup(array.type, null)
        positions = importlib.import_module("pyarrow.compute").call_function("index_in", [array], options)
        if positions.null_count:
            positions = positions.fill_null(none)
        result = positions.to_numpy(zero_copy_only=False)
        return self._checked(
            result if codes is None else codes.take(result),
            lambda row: null if (text := array[row].as_py()) is None else text,
        )

    def _of(self, value: Any) -> int:
        try:
            code = self._codes.get(value)
        except TypeError:
            raise InputError(
                f"{self._encoder.where}: expected a category, got a value of the type {type(value).__name__}."
            ) from None
        if code is not None:
            return code
        if value is None:
            return self._none
        if is_nan(value):
            return self._nan
        # A step may treat other values as missing (NaT).
        return self._other if isinstance(value, _PLAIN) else self._code(self._filled(value))

    def _filled(self, value: Any) -> Any:
        for step in self._steps:
            if isinstance(step, Fill):
                value = step.value if is_missing(value, step.missing) else value
            elif isinstance(step, IsMissing):
                value = float(is_missing(value, step.missing))
        return value

    def _code(self, value: Any) -> int:
        try:
            return self._encoder.code(value)
        except InputError:
            return self._refused_code

    def _refused(self, value: Any, row: int | None) -> InputError:
        error = self._encoder.refused(self._filled(math.nan if is_nan(value) else value))
        return error if row is None else InputError(f"row {ROW}: {error}", row)

    def _checked(self, codes: np.ndarray, value: Callable[[int], Any]) -> np.ndarray:
        if self._refused_code >= 0:
            bad = codes == self._refused_code
            if bad.any():
                row = int(bad.argmax())
                raise self._refused(value(row), row)
        return codes

    def _numbers(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, int]:
        """Return, for an array's type: sorted numbers, their codes (others' last), and NaN's code."""
        kind: Any = np.dtype(np.int64) if dtype.kind in "iu" else dtype
        known = self._tables.get(kind)
        if known is None:
            pairs = {}
            for value in self._codes:
                number = _exactly(value, kind)
                if number is not None:
                    pairs[number.item()] = self._of_typed(number)
            keys = sorted(pairs)
            codes = np.array([*(pairs[key] for key in keys), self._other], _CODE)
            nan = self._of_typed(kind.type(np.nan)) if kind.kind == "f" else self.unknown
            known = self._tables[kind] = np.array(keys, kind), codes, nan
        return known

    def _of_typed(self, value: Any) -> int:
        """Return the code of a number in an array; filled-in values are rounded to the array's type."""
        if not isinstance(value, np.floating):
            return self._code(self._filled(value.item()))
        x = np.array([value])
        try:
            for step in self._steps:
                x = step.apply(x)
        except (TypeError, ValueError):  # the filled-in value is a text
            return self._code(self._filled(value.item()))
        return self._code(x[0].item())

    def _lookup(self, kind: Any, null: Any) -> tuple[Any, int, np.ndarray | None]:
        """Return Arrow's lookup options for a text type, unknown texts' position, and codes by position.

        Codes are None if they equal the positions.
        """
        key = str(kind), null is None
        known = self._lookups.get(key)
        if known is None:
            arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
            texts = sorted((code, text) for text, code in self._codes.items() if isinstance(text, str))
            words: list[str | None] = [text for _, text in texts]
            codes = [code for code, _ in texts]
            empty = self._of(null)
            if empty != self._other:
                words.append(None)
                codes.append(empty)
            codes.append(self._other)
            options = compute.SetLookupOptions(value_set=arrow.array(words, kind))
            table = None if codes == list(range(len(codes))) else np.array(codes, _CODE)
            known = self._lookups[key] = options, len(words), table
        return known


def _exactly(value: Any, dtype: np.dtype) -> Any:
    """Return the number of a numpy type that equals a Python value; None if there is none."""
    if not isinstance(value, int | float | np.number | np.bool_):
        return None
    try:
        with np.errstate(all="ignore"):
            number = dtype.type(value)
    except (OverflowError, ValueError):
        return None
    return number if number.item() == value else None
