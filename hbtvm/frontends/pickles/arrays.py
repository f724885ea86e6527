"""numpy's dtypes, arrays and scalars of a pickle, built from checked types and bytes.

Only types without harmful bit patterns are built: numbers, bools, bytes, strings and records of these. An
array of objects becomes an `ObjectArray`. Other types, such as dates, stay inert.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles.records import ObjectArray

_TYPE = re.compile(
    r"[|<>=]?(?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[SUV][0-9]{1,9}|O[48]?|[?bBhHiIlLqQefdgFDGO])"
)
_MOST_DIMENSIONS = 32
_MOST_FIELDS = 10_000


def base_dtype(spec: Any) -> np.dtype[Any] | None:
    """Return the type of a string such as ``"f8"``; None for unsupported types."""
    if not isinstance(spec, str) or not _TYPE.fullmatch(spec):
        return None
    return np.dtype("O") if "O" in spec else np.dtype(spec)


def with_state(dtype: np.dtype[Any], state: Any) -> np.dtype[Any] | None:
    """Return a type after its pickled state: byte order, or fields and their offsets.

    Returns None for unsupported types of numpy, such as fields with objects. Raises `ModelError` for states
    that numpy would not write, such as objects disguised as bytes.
    """
    if not isinstance(state, tuple) or not 5 <= len(state) <= 9 or not isinstance(state[0], int):
        raise _damaged("a type's state")
    order, part, names, fields = state[1:5]
    size = state[5] if len(state) > 5 else -1
    if order not in ("<", ">", "|", "="):
        raise _damaged("a type's byte order")
    if part is not None:
        return _with_part(dtype, part)
    if names is None and not fields:
        if size not in (-1, dtype.itemsize) or dtype.hasobject != (dtype.kind == "O"):
            raise _damaged("a type's size")
        return dtype if order in ("|", "=") or dtype.kind in "OSVb" else dtype.newbyteorder(order)
    return _with_fields(dtype, names, fields, size)


def _with_part(dtype: np.dtype[Any], part: Any) -> np.dtype[Any] | None:
    """Return a type of small arrays; ``part`` is their type and shape."""
    if not isinstance(part, tuple) or len(part) != 2:
        raise _damaged("a type of arrays")
    base, shape = part
    if base is None or (isinstance(base, np.dtype) and base.hasobject):
        return None
    if not isinstance(base, np.dtype) or dtype.kind != "V":
        raise _damaged("a type of arrays")
    result = np.dtype((base, checked_shape(shape)))
    if result.itemsize != dtype.itemsize:
        raise _damaged("a type of arrays")
    return result


def _with_fields(dtype: np.dtype[Any], names: Any, fields: Any, size: Any) -> np.dtype[Any] | None:
    if not isinstance(names, tuple) or not isinstance(fields, dict) or dtype.kind != "V":
        raise _damaged("a record type")
    if not 0 < len(names) == len(fields) <= _MOST_FIELDS or not all(isinstance(name, str) for name in names):
        raise _damaged("a record type's names")
    formats, offsets = [], []
    for name in names:
        field = fields.get(name)
        if not isinstance(field, tuple) or len(field) not in (2, 3) or type(field[1]) is not int:
            raise _damaged("a record type's fields")
        if field[0] is None:
            return None
        if not isinstance(field[0], np.dtype):
            raise _damaged("a record type's fields")
        if field[0].hasobject:
            return None
        formats.append(field[0])
        offsets.append(field[1])
    # Overlapping fields could claim more than the record has. numpy checks that each lies within the record.
    ends = [offset + kind.itemsize for kind, offset in zip(formats, offsets, strict=True)]
    spans = sorted(zip(offsets, ends, strict=True))
    if any(end > start for (_, end), (start, _) in itertools.pairwise(spans)):
        raise _damaged("a record type of overlapping fields")
    result = np.dtype(
        {"names": list(names), "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize}
    )
    if result.itemsize != size:
        raise _damaged("a record type's size")
    return result


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as plain numbers.

    Raises `ModelError` if it is not a shape.
    """
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    if not isinstance(shape, tuple) or len(shape) > _MOST_DIMENSIONS:
        raise _damaged("an array's shape")
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 0 <= size < 1 << 48:
            raise _damaged("an array's shape")
    return tuple(int(size) for size in shape)


def count_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the number of values of an array.

    Raises `ModelError` if it has more than can be stored, or values without size.
    """
    count = math.prod(shape)
    if count and dtype.itemsize == 0:
        raise _damaged("an array of values without size")
    if count * max(dtype.itemsize, 1) >= 1 << 62:
        raise _damaged("an array's shape")
    return count


def from_bytes(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """Return an array that is a view of `content`.

    `content`: the array's bytes.
    `order`: ``"F"`` (or True) for Fortran order, else C order.
    Raises `ModelError` if they don't fit together.
    """
    shape = checked_shape(shape)
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise _damaged("an array's type")
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise _damaged("an array's bytes")
    count = count_of(shape, dtype)
    if len(content) != count * dtype.itemsize:
        raise ModelError(
            f"expected a pickled model, but an array of it has {len(content)} bytes in place of "
            f"{count * dtype.itemsize}."
        )
    if not count:
        return np.empty(shape, dtype)
    if dtype.subdtype is not None:
        raise _damaged("an array's type")
    # numpy miscounts bools that are neither 0 nor 1.
    stored = np.frombuffer(content, np.uint8 if dtype.kind == "b" else dtype, count)
    values: np.ndarray = np.not_equal(stored, 0) if dtype.kind == "b" else stored
    array: np.ndarray = values.reshape(shape, order="F" if order in ("F", True) else "C")
    return array


def of_objects(items: Any, shape: Any) -> ObjectArray:
    """Return an array of objects, which pickles list in C order.

    Raises `ModelError` if the number of items does not fit the shape.
    """
    shape = checked_shape(shape)
    if not isinstance(items, list) or len(items) != count_of(shape, np.dtype("O")):
        raise _damaged("an array of objects")
    return ObjectArray(shape, items)


def scalar(dtype: Any, content: Any) -> Any:
    """Return a value of a type from its bytes.

    Raises `ModelError` if they don't fit together.
    """
    if not isinstance(dtype, np.dtype):
        raise _damaged("a number's type")
    if dtype.hasobject:
        return content
    if not isinstance(content, (bytes, bytearray, memoryview)) or dtype.names is not None:
        raise _damaged("a number")
    return from_bytes(content, dtype, (1,), "C").astype(dtype.newbyteorder("="))[0]


def field(records: np.ndarray, name: str, default: Any = None) -> np.ndarray:
    """Return a column of numbers of an array of records, in native byte order.

    Raises `ModelError` if there is no such column and no default, or it does not hold numbers.
    """
    if records.dtype.names is None or name not in records.dtype.names:
        if default is None:
            raise ModelError(f"expected a pickled model, but its nodes have no {name!r}.")
        return np.full(len(records), default)
    column: np.ndarray = records[name]
    if column.dtype.kind == "b":
        bools: np.ndarray = np.not_equal(np.ascontiguousarray(column).view(np.uint8), 0)
        return bools
    if column.dtype.kind not in "iuf" or column.ndim != 1:
        raise ModelError(f"expected a pickled model, but {name!r} of its nodes are not numbers.")
    native: np.ndarray = column.astype(column.dtype.newbyteorder("="))
    return native


def _damaged(subject: str) -> ModelError:
    return ModelError(f"expected a pickled model, but it is damaged: {subject} cannot be.")
