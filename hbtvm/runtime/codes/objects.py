"""Codes of arrays of Python objects: each object that is there many times is looked up once.

Values of few categories are mostly the same few objects, as whatever made the array kept one for each value.
Objects are told apart by their addresses here, which takes numpy a few nanoseconds; to look one up in a
dictionary takes ten times as long.
"""

from __future__ import annotations

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.codes.coder import Coder

_LEAST = 512  # objects from which on they are told apart by address

_SAMPLE, _DISTINCT = 256, 160  # how many are looked at first, and of how many objects these may be

_SLOTS = 13  # binary logarithm of the slots that addresses are sorted into
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # spreads addresses over the slots: 2^64 over the golden ratio


def object_codes(array: np.ndarray, coder: Coder) -> np.ndarray:
    """The codes of Python objects, shape (n,).

    Raises `InputError` if one is no category, and that is an error.

    `array`: of type ``object``, shape (n,), any stride.
    """
    if len(array) >= _LEAST:
        try:
            found = _by_address(array, coder)
        except InputError:
            found = None  # says which row it is
        if found is not None:
            return found
    return coder.of_values(array.tolist())


def _by_address(array: np.ndarray, coder: Coder) -> np.ndarray | None:
    """None where too many objects differ."""
    addresses = _addresses(array)
    if addresses is None or len(set(addresses[:_SAMPLE].tolist())) > _DISTINCT:
        return None
    # An address means something only as long as the array holds its object, so nothing is kept of it.
    slot = ((addresses * _FACTOR) >> np.uint64(64 - _SLOTS)).astype(np.intp)
    member = np.full(1 << _SLOTS, -1)
    member[slot] = np.arange(len(array))
    same = addresses[member[slot]] == addresses
    used = np.flatnonzero(member >= 0)
    others = np.flatnonzero(~same)
    if len(used) + len(others) > len(array) >> 1:
        return None
    codes = np.empty(len(member), np.float64)
    codes[used] = coder.of_values(array[member[used]].tolist())
    found: np.ndarray = codes[slot]
    if len(others):
        found[others] = coder.of_values(array[others].tolist())
    return found


def _addresses(array: np.ndarray) -> np.ndarray | None:
    """uint64, shape (n,); None where addresses are no 64-bit numbers, or numpy does not show them."""
    try:
        return _shown(array) if array.dtype.itemsize == 8 else None
    except (TypeError, ValueError):
        return None


def _shown(array: np.ndarray) -> np.ndarray:
    base = array.base
    if isinstance(base, np.ndarray) and base.dtype == object and base.ndim == 2 and base.flags.c_contiguous:
        # A column of a matrix; to copy it would count references to each object.
        at = (_start(array) - _start(base)) // 8
        if array.shape == base.shape[:1] and array.strides == base.strides[:1] and 0 <= at < base.shape[1]:
            whole: np.ndarray = np.ndarray(base.shape, np.uint64, base)
            return whole[:, at]
    packed = np.ascontiguousarray(array)
    # (Views of objects as numbers are refused, but not as what lies in a buffer.)
    found: np.ndarray = np.ndarray(packed.shape, np.uint64, packed)
    return found


def _start(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found
