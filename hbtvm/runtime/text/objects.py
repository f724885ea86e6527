"""Texts and features in lists and arrays of Python objects, read by compiled code (`text/python.h`)."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.graph.columns.text import Form
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.text.texts import Texts, address_of

_FORMS: dict[Form, int] = {"string": 1, "dict": 2, "pair": 3, "features": 4}
_POINTERS, _LIST, _TUPLE = range(3)
_FAILED = -1
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
        *((name, _POINTER) for name in _CALLED),
        ("type_at", _I64),
        *((kind.__name__, _POINTER) for kind in _TYPES),
    )  # fmt: skip


class _Objects(ctypes.Structure):
    _fields_ = (("container", _I64), ("at", _POINTER), ("stride", _I64), ("count", _I64))


class _Features(ctypes.Structure):
    _fields_ = (("kind", _I64), ("width", _I64), ("separator", ctypes.c_char_p), ("separator_size", _I64))


class _Gathered(ctypes.Structure):
    _fields_ = (
        ("bytes", _POINTER), ("offsets", _POINTER), ("texts", _I64), ("size", ctypes.c_size_t),
        ("room", ctypes.c_size_t), ("offset_room", ctypes.c_size_t),
    )  # fmt: skip


class _Memory:
    """The result of a read, released with the last reference to it."""

    def __init__(self, release: Callable[[Any], None]) -> None:
        self.gathered, self._release = _Gathered(), release

    def __del__(self) -> None:
        self._release(ctypes.byref(self.gathered))


class ObjectRows:
    """Rows of features, which compiled code reads while it computes.

    `rows`: a list, tuple or array of rows of `form`. An array of strings may have the shape (n, k).
    `form`: see `hbtvm.graph.columns.text.Analyzer.form`.
    `separator`: separates a feature's name and text.
    `plain`: reads the rows in Python if compiled code can't.
    `rows`: number of rows.
    `arguments`: arguments of `hbtvm.runtime.text.library.Functions`, between the operation and the first row;
        None if the functions can't read the interpreter's objects, or the container.
    """

    def __init__(self, rows: Any, form: Form, separator: str, plain: Callable[[], Texts]) -> None:
        self.rows, self.plain = len(rows), plain
        self.arguments: tuple[Any, ...] | None = None
        python, layout = _python(), _objects(rows, flat=form != "string")
        if python is None or layout is None:
            return
        try:
            between = separator.encode()
        except UnicodeEncodeError:
            return
        self._keep, objects, width = layout
        features = _Features(_FORMS[form], width, between, len(between))
        self.arguments = ctypes.byref(python), ctypes.byref(features), ctypes.byref(objects)


def read_texts(library: TextLibrary, values: Any) -> Texts | None:
    """Read the texts of a list, a tuple, or an array of objects, shape (n,), by compiled code.

    Returns None if a value is not a text, or compiled code can't read the container.
    """
    python, objects = _python(), _objects(values, flat=True)
    if python is None or objects is None:
        return None
    functions = library.functions()
    memory = _Memory(functions.release)
    read = memory.gathered
    done = functions.read(ctypes.byref(python), ctypes.byref(objects[1]), ctypes.byref(read))
    if done == _FAILED:
        raise MemoryError
    if done:
        return None
    return Texts(objects[1].count, read.bytes, read.offsets, True, memory)


def _objects(values: Any, flat: bool) -> tuple[Any, _Objects, int] | None:
    """Return the object to keep alive, the objects' location, and a two-dimensional array's width, else 0."""
    if type(values) is list:
        return values, _Objects(_LIST, id(values), 0, len(values)), 0
    if type(values) is tuple:
        return values, _Objects(_TUPLE, id(values), 0, len(values)), 0
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return None
    if values.ndim == 2 and values.shape[1] and not flat:
        values = np.ascontiguousarray(values)
    elif values.ndim != 1:
        return None
    width = values.shape[1] if values.ndim == 2 else 0
    return values, _Objects(_POINTERS, address_of(values), values.strides[-1], values.size), width


@functools.cache
def _python() -> _Python | None:
    """Return the interpreter's functions and types; None if its objects have an unknown layout."""
    free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or free:
        return None
    try:
        called = [ctypes.cast(getattr(ctypes.pythonapi, name), _POINTER).value for name in _CALLED]
    except AttributeError:
        return None
    type_at = object.__basicsize__ - ctypes.sizeof(_POINTER)
    for kind in _TYPES:
        instance: object = kind()
        if _POINTER.from_address(id(instance) + type_at).value != id(kind):
            return None
    return _Python(*called, type_at, *map(id, _TYPES))
