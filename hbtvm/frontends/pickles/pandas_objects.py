"""The values of pandas' objects in pickles: indexes, series and data frames, with Arrow's texts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles.records import Global, ObjectArray, Record, kind_of

_MOST = 1 << 24
"""Bound of the values of ranges and of repeated chunks, which take no bytes in a file."""


def index_values(index: Any) -> list[Any]:
    """Return the values of an index as Python values: strings, numbers, None.

    Raises `ModelError` if it is damaged, or of a type that is not read (dates, several levels).
    """
    if not isinstance(index, Record) or index.kind != "_new_Index" or len(index.args) != 2:
        raise _unreadable(index)
    cls, parts = index.args
    if not isinstance(cls, Global) or not isinstance(parts, dict):
        raise _unreadable(index)
    if cls.name == "RangeIndex":
        bounds: list[Any] = [parts.get(name) for name in ("start", "stop", "step")]
        if not all(isinstance(bound, int) for bound in bounds) or bounds[2] == 0:
            raise _unreadable(index)
        count = len(range(*bounds))
        if count > _MOST:
            raise _unreadable(index)
        return list(range(*bounds))
    return array_values(parts.get("data"))


def array_values(array: Any) -> list[Any]:
    """Return the values of an array of numpy or pandas as Python values; errors as `index_values`."""
    if isinstance(array, ObjectArray):
        return list(array.array().ravel().tolist())
    if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "biufU":
        return list(array.tolist())
    if not isinstance(array, Record):
        raise _unreadable(array)
    if array.kind == "ArrowStringArray" or array.kind == "ArrowStringArrayNumpySemantics":
        state = array.attributes
        return _texts(state.get("_pa_array", state.get("_data")))
    if array.kind == "__pyx_unpickle_NDArrayBacked" and isinstance(array.state, tuple):
        return _backed(array, array.state)
    raise _unreadable(array)


def _backed(array: Record, state: tuple[Any, ...]) -> list[Any]:
    """Return the values of a categorical or of strings that Python objects hold."""
    cls = array.args[0] if array.args else None
    name = cls.name if isinstance(cls, Global) else ""
    if len(state) < 2:
        raise _unreadable(array)
    if name.startswith("StringArray"):
        return array_values(state[1])
    if name != "Categorical" or not isinstance(state[0], Record):
        raise _unreadable(array)
    levels = [*index_values(state[0].get("categories")), np.nan]
    codes = array_values(state[1])
    if any(type(code) is not int or not -1 <= code < len(levels) - 1 for code in codes):
        raise _unreadable(array)
    return [levels[code] for code in codes]


def series(record: Any) -> tuple[list[Any], list[Any]]:
    """Return the index and the values of a series; errors as `index_values`."""
    index, values = series_parts(record)
    index, values = index_values(index), array_values(values)
    if len(index) != len(values):
        raise ModelError("a Series is damaged: its index is of another length.")
    return index, values


def series_parts(record: Any) -> tuple[Any, Any]:
    """Return the index and the values of a series as its pickle holds them; errors as `index_values`."""
    if not isinstance(record, Record) or record.kind != "Series":
        raise _unreadable(record)
    state = record.record("_mgr").state
    content = state[-1].get("0.14.1") if isinstance(state, tuple) and isinstance(state[-1], dict) else None
    if not isinstance(content, dict):
        raise _unreadable(record)
    axes, blocks = content.get("axes"), content.get("blocks")
    if not isinstance(axes, list) or not isinstance(blocks, list) or len(axes) != 1 or len(blocks) != 1:
        raise _unreadable(record)
    if not isinstance(blocks[0], dict):
        raise _unreadable(record)
    return axes[0], blocks[0].get("values")


def frame(record: Any) -> tuple[list[Any], list[Any], np.ndarray]:
    """Return the index, the columns' names, and the numbers of a data frame: float64, shape (rows, columns).

    Errors as `index_values`; also for columns that are not numbers.
    """
    if not isinstance(record, Record) or record.kind != "DataFrame":
        raise _unreadable(record)
    args = record.record("_mgr").args
    if len(args) != 2 or not isinstance(args[0], tuple) or not isinstance(args[1], list) or len(args[1]) != 2:
        raise _unreadable(record)
    columns, index = index_values(args[1][0]), index_values(args[1][1])
    blocks = [_block(block, len(index), record) for block in args[0]]
    places = [place for at, _ in blocks for place in at]
    if sorted(places) != list(range(len(columns))):
        raise ModelError("a DataFrame is damaged: its blocks are not its columns.")
    values = np.empty((len(index), len(columns)))
    for at, numbers in blocks:
        values[:, at] = numbers.T
    return index, columns, values


def objects(record: Record) -> bool:
    """Return whether the index of a data frame that `frame` reads is not of pandas' type of strings."""
    data = record.record("_mgr").args[1][1].args[1].get("data")
    return not isinstance(data, Record)


def _block(block: Any, rows: int, record: Record) -> tuple[list[int], np.ndarray]:
    """Return the columns of a block, and their numbers, shape (columns, rows)."""
    if not isinstance(block, Record) or block.kind != "_unpickle_block" or len(block.args) < 2:
        raise _unreadable(record)
    values, place = block.args[:2]
    if isinstance(values, ObjectArray):
        values = values.array()
        if any(isinstance(value, str) or value is None for value in values.ravel().tolist()):
            raise _unreadable(record)
        values = values.astype(np.float64)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf" or values.ndim != 2:
        raise _unreadable(record)
    if isinstance(place, Record) and place.kind == "slice" and len(place.args) == 3:
        start, stop, step = place.args
        whole = all(isinstance(bound, int) for bound in (start, stop, step)) and start >= 0 and step > 0
        if not whole or (stop - start + step - 1) // step != len(values):
            raise _unreadable(record)
        at = list(range(start, stop, step))
    else:
        at = [int(i) for i in array_values(place)]
    if values.shape != (len(at), rows):
        raise _unreadable(record)
    return at, values


def _texts(array: Any) -> list[Any]:
    """Return the strings of Arrow's array, NaN where it has none."""
    if isinstance(array, Record) and array.kind == "chunked_array" and array.args:
        chunks = array.args[0]
        if isinstance(chunks, list):
            texts_of_all: list[Any] = []
            for chunk in chunks:
                texts_of_all += _texts(chunk)
                if len(texts_of_all) > _MOST:
                    raise _unreadable(array)
            return texts_of_all
    if not isinstance(array, Record) or array.kind != "_restore_array" or not array.args:
        raise _unreadable(array)
    parts = array.args[0]
    if not isinstance(parts, tuple) or len(parts) < 5 or not isinstance(parts[4], list):
        raise _unreadable(array)
    kind, length, _, start, buffers = parts[:5]
    name = kind.args[0] if isinstance(kind, Record) and kind.args else None
    if name not in ("string", "large_string", "utf8", "large_utf8") or len(buffers) != 3:
        raise _unreadable(array)
    if not all(isinstance(number, int) and number >= 0 for number in (length, start)):
        raise _unreadable(array)
    valid, offsets, content = map(_buffer, buffers)
    width = 8 if name.startswith("large") else 4
    if not length:
        return []
    end = start + length
    if len(offsets) < (end + 1) * width or (valid and len(valid) * 8 < end):
        raise ModelError("an array of Arrow is damaged: a buffer is too short.")
    at = np.frombuffer(offsets, f"<i{width}", end + 1).tolist()[start:]
    if min(at) < 0 or max(at) > len(content) or any(a > b for a, b in pairwise(at)):
        raise ModelError("an array of Arrow is damaged: an offset is out of its buffer.")
    try:
        texts: list[Any] = [content[a:b].decode() for a, b in pairwise(at)]
    except UnicodeDecodeError as error:
        raise ModelError("an array of Arrow is damaged: a text is not UTF-8.") from error
    if valid:
        texts = [
            text if valid[i >> 3] >> (i & 7) & 1 else np.nan for i, text in enumerate(texts, start=start)
        ]
    return texts


def _buffer(buffer: Any) -> bytes:
    if buffer is None:
        return b""
    content = buffer.args[0] if isinstance(buffer, Record) and len(buffer.args) == 1 else None
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise _unreadable(buffer)
    return bytes(content)


def _unreadable(value: Any) -> ModelError:
    return ModelError(
        f"expected an index, a series or a data frame of numbers or strings, got {kind_of(value)}."
    )
