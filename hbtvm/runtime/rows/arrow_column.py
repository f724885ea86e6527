"""Columns of Arrow, as in pyarrow's tables and in many columns of pandas and polars."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.rows.raw import Levels, Numbers, RawColumn, Text, Times, Unreadable, Values


def arrow_column(column: Any, null: Any) -> RawColumn:
    """Return a pyarrow.Array or ChunkedArray as a column; `null` is the meaning of a missing value."""
    arrow = sys.modules["pyarrow"]
    check_arrow(column)
    if isinstance(column, arrow.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, arrow.ChunkedArray):  # without chunks
            column = arrow.array([], column.type)
    is_kind, kind = arrow.types, column.type
    if is_kind.is_string(kind) or is_kind.is_large_string(kind) or str(kind) == "string_view":
        return Text(column, null)
    if is_kind.is_dictionary(kind):
        at = column.indices
        if at.null_count:
            at = (at.cast("int64") if is_kind.is_unsigned_integer(at.type) else at).fill_null(-1)
        return Levels(at.to_numpy(zero_copy_only=False), column.dictionary, column.dictionary.to_pylist, null)
    if is_kind.is_floating(kind) or (is_kind.is_integer(kind) and not column.null_count):
        return Numbers(column.to_numpy(zero_copy_only=False))
    if is_kind.is_timestamp(kind) or is_kind.is_date(kind):
        if getattr(kind, "tz", None) is not None:
            return Times(np.array([*column.to_pylist(), None], object)[:-1], str(kind))
        return Times(column.to_numpy(zero_copy_only=False), str(kind))
    plain = (is_kind.is_integer, is_kind.is_boolean, is_kind.is_decimal, is_kind.is_null)
    if any(test(kind) for test in plain):
        values = column.to_pylist()
        return Values(values if null is None else [null if value is None else value for value in values])
    return Unreadable(str(kind))


_OFFSETS: dict[int, np.dtype] = {13: np.dtype(np.int32), 34: np.dtype(np.int64)}
"""Types of offsets of ``string`` and ``large_string``, by Arrow's type number."""

FLAT = frozenset((*range(25), *range(33, 36)))
"""Numbers of types whose rows ``validate()`` checks completely: no dictionaries, nested types or views."""


def check_arrow(column: Any) -> None:
    """Refuse an array, a ChunkedArray or a table whose sizes, offsets or indices lead out of its buffers.

    For texts this takes a hundredth of the time of ``validate(full=True)``, which also checks each byte. For
    a table with more than one row, the caller has to check texts, dictionaries and nested columns
    individually.

    Raises `InputError` if they do.
    """
    arrow = sys.modules["pyarrow"]
    try:
        column.validate()
        kind = getattr(column, "type", None)
        if kind is not None and not arrow.types.is_primitive(kind):
            for array in column.chunks if isinstance(column, arrow.ChunkedArray) else (column,):
                _check_array(arrow, array)
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"a column of Arrow is damaged: {str(error).rstrip('.')}.") from None


def _check_array(arrow: Any, array: Any) -> None:
    kind = array.type
    width = _OFFSETS.get(kind.id)
    if width is not None:
        if len(array):
            offsets = np.frombuffer(array.buffers()[1], width, len(array) + 1, array.offset * width.itemsize)
            if (offsets[1:] < offsets[:-1]).any():
                raise arrow.ArrowInvalid("the offsets of its texts descend")
    elif arrow.types.is_dictionary(kind):
        at = array.indices
        at = (at.drop_null() if at.null_count else at).to_numpy(zero_copy_only=False)
        if len(at) and not 0 <= at.min() <= at.max() < len(array.dictionary):
            raise arrow.ArrowInvalid("an index is in none of its levels")
        _check_array(arrow, array.dictionary)
    elif not arrow.types.is_primitive(kind):
        array.validate(full=True)
