"""Columns of Arrow, which pyarrow's tables and many of pandas' and polars' columns are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.raw import Levels, Numbers, RawColumn, Text, Unreadable, Values


def arrow_column(column: Any, null: Any) -> RawColumn:
    """A pyarrow.Array or ChunkedArray as a column; `null` is what no value means."""
    arrow = sys.modules["pyarrow"]
    check_arrow(column)
    if isinstance(column, arrow.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, arrow.ChunkedArray):  # of no chunk at all
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
    plain = (is_kind.is_integer, is_kind.is_boolean, is_kind.is_decimal, is_kind.is_null)
    if any(test(kind) for test in plain):
        values = column.to_pylist()
        return Values(values if null is None else [null if one is None else one for one in values])
    return Unreadable(str(kind))


def check_arrow(column: Any) -> None:
    """Refuse an array or ChunkedArray whose offsets or indices lead out of its buffers.

    This takes a hundredth of the time of ``validate(full=True)``, which also looks at each byte of the texts.

    Raises
    ------
    InputError
        If one does.
    """
    arrow = sys.modules["pyarrow"]
    for array in column.chunks if isinstance(column, arrow.ChunkedArray) else (column,):
        kind = str(array.type)
        try:
            plain = arrow.types.is_primitive(array.type) or kind in ("string", "large_string")
            array.validate(full=not plain)
        except (arrow.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"a column of Arrow is damaged: {str(error).rstrip('.')}.") from None
        if kind in ("string", "large_string") and len(array):
            dtype = np.dtype(np.int32 if kind == "string" else np.int64)
            offsets = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype.itemsize)
            if (offsets[1:] < offsets[:-1]).any():
                raise InputError("a column of Arrow is damaged: the offsets of its texts descend.")
