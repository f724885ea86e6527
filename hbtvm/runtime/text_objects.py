"""Texts and features out of lists and arrays of Python's objects, read by compiled code (`text_python.h`)."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from hbtvm.runtime.text_library import TextLibrary
from hbtvm.runtime.texts import Texts, address_of

Features = Literal["texts", "string", "dict", "pair", "features"]

_FEATURES: dict[Features, int] = {"texts": 0, "string": 1, "dict": 2, "pair": 3, "features": 4}
_POINTERS, _LIST, _TUPLE = range(3)
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p

_CALLED = (
    "PyUnicode_AsUTF8AndSize", "PyList_Size", "PyList_GetItem", "PyTuple_Size", "PyTuple_GetItem",
    "PyDict_Next", "PyFloat_AsDouble", "PyErr_Occurred", "PyErr_Clear",
)  # fmt: skip
_TYPES = (
    str, list, tuple, dict, float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_,
)  # fmt: skip


class _Python(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in _CALLED), ("type_at", _I64), *((one.__name__, _POINTER) for one in _TYPES)
    )  # fmt: skip


class _Objects(ctypes.Structure):
    _fields_ = (("container", _I64), ("at", _POINTER), ("stride", _I64))


class _Gathered(ctypes.Structure):
    _fields_ = (
        ("bytes", _POINTER), ("offsets", _POINTER), ("rows", _POINTER), ("values", _POINTER), ("texts", _I64),
        *((name, ctypes.c_size_t) for name in ("size", "room", "offset_room", "value_room", "row_room")),
        ("valued", _I64),
    )  # fmt: skip


class _Memory:
    """What was read, released with the last reference to it."""

    def __init__(self, release: Callable[[Any], None]) -> None:
        self.gathered, self._release = _Gathered(), release

    def __del__(self) -> None:
        self._release(ctypes.byref(self.gathered))


def read_objects(library: TextLibrary, rows: Any, features: Features, separator: str = "=") -> Texts | None:
    """Texts or features of rows.

    Parameters
    ----------
    library
        The code.
    rows
        A list or tuple of objects, or an array of them, of shape (n,); for ``"string"`` also (n, k).
    features
        ``"texts"`` for one text each, else what a row is: see `hbtvm.graph.text.Analyzer.form`.
    separator
        Between the name of a feature and its text.

    Returns
    -------
    None where an object, or the interpreter, is of a kind that only Python reads.
    """
    python = _python()
    count, width = len(rows), 0
    if python is None or not count:
        return None
    if isinstance(rows, np.ndarray):
        if rows.dtype != object or rows.ndim > 2:
            return None
        if rows.ndim == 2:
            if features != "string":
                return None
            rows, width = np.ascontiguousarray(rows), rows.shape[1]
            if not width:
                return None
        objects = _Objects(_POINTERS, address_of(rows), rows.strides[-1])
    elif type(rows) is list or type(rows) is tuple:
        objects = _Objects(_LIST if type(rows) is list else _TUPLE, id(rows), 0)
    else:
        return None
    try:
        between = separator.encode()
    except UnicodeEncodeError:
        return None
    functions = library.functions()
    memory = _Memory(functions.release)
    found = memory.gathered
    done = functions.read(
        ctypes.byref(python), ctypes.byref(objects), count, width, _FEATURES[features], between, len(between),
        ctypes.byref(found),
    )  # fmt: skip
    if done:
        if done < 0:
            raise MemoryError
        return None
    starts = None if features == "texts" else found.rows
    values = found.values if found.valued else None
    return Texts(count, found.bytes, found.offsets, True, memory, starts, values, found.texts)


@functools.cache
def _python() -> _Python | None:
    """The interpreter's functions and types; None for one whose objects are not as expected."""
    free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or free:
        return None
    try:
        called = [ctypes.cast(getattr(ctypes.pythonapi, name), _POINTER).value for name in _CALLED]
    except AttributeError:
        return None
    type_at = object.__basicsize__ - ctypes.sizeof(_POINTER)
    for kind in _TYPES:
        one = kind()
        if _POINTER.from_address(id(one) + type_at).value != id(kind):
            return None
    return _Python(*called, type_at, *map(id, _TYPES))
