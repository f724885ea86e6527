"""Columns of Arrow, which pyarrow's tables and many of pandas' and polars' columns are."""

from __future__ import annotations

import sys
from typing import Any

from hbtvm.runtime.raw import Levels, Numbers, RawColumn, Text, Unreadable, Values


def arrow_column(column: Any, null: Any) -> RawColumn:
    """A pyarrow.Array or ChunkedArray as a column; `null` is what no value means."""
    arrow = sys.modules["pyarrow"]
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
