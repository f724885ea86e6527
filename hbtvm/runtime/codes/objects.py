"""Codes of arrays of Python objects: repeated objects are looked up once.

Columns of few categories mostly hold the same few objects. Comparing their addresses takes numpy a few
nanoseconds per value; a dictionary lookup takes ten times as long.
"""

from __future__ import annotations

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.codes.coder import Coder
from hbtvm.runtime.codes.hashes import HashCoder

_LEAST = 512  # fewest objects that are compared by address

_SAMPLE, _DISTINCT = 256, 160  # objects that are sampled first, and how many distinct ones may be among them

_SLOTS = 13  # binary logarithm of the number of slots for addresses
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # spreads addresses over the slots: 2^64 over the golden ratio


def object_codes(array: np.ndarray, coder: Coder | HashCoder) -> np.ndarray:
    """Return the codes of Python objects, shape (n,).

    Raises `InputError` if an object is not a category and unknown values are refused.

    `array`: dtype ``object``, shape (n,), any stride.
    """
    if len(array) >= _LEAST:
        try:
            codes = _by_address(array, coder)
        except InputError:
            codes = None  # the coder's error names the row
        if codes is not None:
            return codes
    return coder.of_values(array.tolist())


def _by_address(array: np.ndarray, coder: Coder | HashCoder) -> np.ndarray | None:
    """Return the codes; None if too many objects differ."""
    addresses = _addresses(array)
    if addresses is None or len(set(addresses[:_SAMPLE].tolist())) > _DISTINCT:
        return None
    # Addresses are valid only while the array holds the objects, so none is cached.
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
    result: np.ndarray = codes[slot]
    if len(others):
        result[others] = coder.of_values(array[others].tolist())
    return result


def _addresses(array: np.ndarray) -> np.ndarray | None:
    """Return addresses, uint64, shape (n,); None if they are not 64-bit, or numpy does not expose them."""
    try:
        return _shown(array) if array.dtype.itemsize == 8 else None
    except (TypeError, ValueError):
        return None


def _shown(array: np.ndarray) -> np.ndarray:
    base = array.base
    if isinstance(base, np.ndarray) and base.dtype == object and base.ndim == 2 and base.flags.c_contiguous:
        # A column of a matrix; a copy would count references to each object.
        at = (_start(array) - _start(base)) // 8
        if array.shape == base.shape[:1] and array.strides == base.strides[:1] and 0 <= at < base.shape[1]:
            whole: np.ndarray = np.ndarray(base.shape, np.uint64, base)
            return whole[:, at]
    packed = np.ascontiguousarray(array)
    # (numpy refuses views of objects as numbers, but not of a buffer.)
    addresses: np.ndarray = np.ndarray(packed.shape, np.uint64, packed)
    return addresses


def _start(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
