"""Tensors of the Open Inference Protocol, as numpy's arrays.

Source: the Open Inference Protocol, "Required API" and "Binary tensor data extension"
(https://github.com/kserve/open-inference-protocol).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.errors import InputError

NUMBERS = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""The protocol's numeric types; texts are ``BYTES``."""

BYTES = "BYTES"

_NAMES = {dtype: name for name, dtype in NUMBERS.items()}

_NULL = type(None)
_TEXTS: frozenset[type] = frozenset((str, _NULL))
_KINDS: dict[str, frozenset[type]] = {
    "b": frozenset((bool,)),
    "u": frozenset((int,)),
    "i": frozenset((int,)),
    "f": frozenset((int, float, _NULL)),
}
"""Accepted types of JSON values by numpy's kind of the type."""

_FLOATS = {"FP32": "f", "FP64": "d"}  # types of most requests, and Python's array codes of them
_LENGTH = 4  # bytes of the length before each text in a binary tensor


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the protocol's name of a numpy type; ``BYTES`` for texts and Python objects."""
    return _NAMES.get(dtype, BYTES)


def from_json(data: Any, datatype: str, shape: Sequence[int], name: str) -> np.ndarray:
    """Return a tensor whose values are in the request's JSON.

    Values beyond the range of a floating-point type become infinite, as with a cast.

    `data`: values in row-major order, in nested lists or a flat list. ``null`` is a missing text or
        floating-point number. datatype, shape, name From the request.
    Returns an array of that shape and datatype; float32 for ``FP16``, Python strings for ``BYTES``. Raises
    `InputError` if the values have another type or shape.
    """
    if type(data) is not list:
        raise InputError(f'input {name!r}: "data" is {_kind(data)}, expected a list of values.')
    code = _FLOATS.get(datatype)
    if code is not None:
        try:
            numbers = array(code, data)
        except (TypeError, OverflowError):
            pass  # lists, missing values, or non-numbers
        else:
            _check_count(len(numbers), shape, name)
            # Create the array with its final shape at once.
            tensor: np.ndarray = np.ndarray(shape, code, numbers)
            return tensor
    flat = _flat(data, len(shape), name)
    # For texts, numpy would create an array as wide as the longest text.
    kinds = set(map(type, flat))
    if datatype == BYTES:
        if not kinds <= _TEXTS:
            raise InputError(
                f"input {name!r}: {_odd(flat, _TEXTS)} is among its values, expected only texts."
            )
        return _shaped(_objects(flat), shape, name)
    dtype = _number_type(datatype, name)
    known = _KINDS[dtype.kind]
    if not kinds <= known:
        raise InputError(f"input {name!r}: {_odd(flat, known)} is among its values, expected {datatype}.")
    if dtype.kind == "f":
        return _shaped(_floats(flat, _computed(dtype)), shape, name)
    if dtype.kind != "b" and flat:
        limits = np.iinfo(dtype)
        if min(flat) < limits.min or max(flat) > limits.max:
            raise InputError(f"input {name!r}: a value is out of the range of {datatype}.")
    return _shaped(np.array(flat, dtype), shape, name)


def from_bytes(data: memoryview, datatype: str, shape: Sequence[int], name: str) -> np.ndarray:
    """Return a tensor whose values are bytes after the request's JSON.

    `data`: the tensor's bytes: little-endian numbers in row-major order; each text follows its length in
        bytes (uint32).
    `datatype`, `shape`, `name`: from the request.
    Raises `InputError` if the number of bytes does not fit the shape, or a text is not UTF-8.
    """
    if datatype == BYTES:
        return _shaped(_split(data, name), shape, name)
    dtype = _number_type(datatype, name)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise InputError(
            f"input {name!r}: {datatype} of shape {list(shape)} takes {expected:,} bytes, got {len(data):,}."
        )
    array = np.frombuffer(data, dtype).reshape(shape)
    if not array.flags.aligned:
        array = array.copy()
    return array.astype(_computed(dtype), copy=False)


def to_json(values: np.ndarray) -> Any:
    """Return an output's values as a flat list."""
    flat = values.reshape(-1)
    if values.dtype in _NAMES:
        # The JSON writer turns NaN and infinities into null.
        return flat.tolist()
    return [item if isinstance(item, str) else str(item) for item in flat.tolist()]


def to_bytes(values: np.ndarray) -> bytes:
    """Return an output's values in the format of `from_bytes`."""
    dtype = values.dtype.newbyteorder("<")
    if dtype in _NAMES:
        return np.ascontiguousarray(values, dtype).tobytes()
    parts = [str(text).encode() for text in values.reshape(-1).tolist()]
    return b"".join(len(text).to_bytes(_LENGTH, "little") + text for text in parts)


def _number_type(datatype: Any, name: str) -> np.dtype[Any]:
    number = NUMBERS.get(datatype) if isinstance(datatype, str) else None
    if number is None:
        known = ", ".join((*NUMBERS, BYTES))
        raise InputError(f"input {name!r}: its datatype is {datatype!r:.40}, expected one of {known}.")
    return number


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type for models, which do not take half precision."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _flat(data: list[Any], axes: int, name: str) -> list[Any]:
    """Flatten nested lists, at most as deep as the tensor has axes."""
    for _ in range(axes - 1):
        if not data or type(data[0]) is not list:
            break
        if any(type(item) is not list or len(item) != len(data[0]) for item in data):
            raise InputError(f'input {name!r}: the lists in "data" differ in length, or not all are lists.')
        data = [item for inner in data for item in inner]
    return data


def _floats(flat: list[Any], dtype: np.dtype[Any]) -> np.ndarray:
    """Return floating-point numbers, with NaN for null."""
    with np.errstate(over="ignore"):
        return np.array(flat, np.float64).astype(dtype, copy=False)


def _objects(flat: list[Any]) -> np.ndarray:
    objects = np.empty(len(flat), object)
    objects[:] = flat
    return objects


def _odd(flat: list[Any], known: frozenset[type]) -> str:
    """Describe the first value of an unexpected type."""
    return _kind(next(value for value in flat if type(value) not in known))


def _split(data: memoryview, name: str) -> np.ndarray:
    texts, at = [], 0
    while at < len(data):
        start = at + _LENGTH
        stop = start + int.from_bytes(data[at:start], "little")
        if start > len(data) or stop > len(data):
            raise InputError(f"input {name!r}: its last text ends after the tensor's bytes.")
        try:
            texts.append(str(data[start:stop], "utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"input {name!r}: text {len(texts)} is not UTF-8.") from error
        at = stop
    return _objects(texts)


def _shaped(array: np.ndarray, shape: Sequence[int], name: str) -> np.ndarray:
    _check_count(array.size, shape, name)
    return array.reshape(shape)


def _check_count(actual: int, shape: Sequence[int], name: str) -> None:
    count = shape[0] * shape[1] if len(shape) == 2 else math.prod(shape)
    if actual != count:
        raise InputError(f"input {name!r}: shape {list(shape)} takes {count:,} values, got {actual:,}.")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", _NULL: "null"}
    return names.get(type(value), "a number")
