"""Layout of numpy's arrays and its functions that create arrays, for ``numpy.c``.

Both are part of numpy's binary interface, on which every extension compiled against numpy relies: the fields
of ``PyArrayObject``, the first fields of ``PyArray_Descr``, and the function table that ``_ARRAY_API`` points
to. This module checks them against known arrays before use.
"""

from __future__ import annotations

import ctypes
import functools
import importlib

import numpy as np

from hbtvm.runtime.native.structures import Python

_POINTER = ctypes.c_void_p

_DICT_FUNCTIONS = {
    "item": "PyDict_GetItemWithError", "size": "PyList_Size", "number": "PyFloat_AsDouble",
    "integer": "PyLong_AsLongLongAndOverflow", "text": "PyUnicode_AsUTF8AndSize",
}  # fmt: skip

_DICT_TYPES = {"dict": dict, "list": list, "float": float, "integer": int, "bool": bool, "text": str}

_PLACES = {
    "type_at": 8, "data_at": 16, "axes_at": 24, "shape_at": 32, "dtype_at": 56, "flags_at": 64,
    "number_at": 28, "order_at": 26,
}  # fmt: skip

_STRIDES = 40  # the offset of an array's strides, which follow its shape

_NEW, _SET_BASE = 93, 282  # indices of ``PyArray_New`` and ``PyArray_SetBaseObject`` in the table


class DictInterface(ctypes.Structure):
    """``struct dict_api``."""

    _fields_ = (
        *((name, _POINTER) for name in _DICT_FUNCTIONS),
        *((f"{name}_type", _POINTER) for name in _DICT_TYPES),
    )


def dict_interface() -> DictInterface:
    """Return the parameters of ``dicts.c``."""
    functions = (getattr(ctypes.pythonapi, name) for name in _DICT_FUNCTIONS.values())
    addresses = (ctypes.cast(function, _POINTER).value for function in functions)
    return DictInterface(*addresses, *map(id, _DICT_TYPES.values()))


@functools.cache
def interface() -> Python | None:
    """Return the parameters of ``numpy.c``; None for an unknown interpreter or numpy."""
    if not _is_known():
        return None
    api = ctypes.pythonapi
    pointer = api.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    core = "numpy.core" if np.__version__.startswith("1.") else "numpy._core"
    module = importlib.import_module(f"{core}._multiarray_umath")
    table = ctypes.cast(pointer(module._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))

    def address(name: str) -> int | None:
        return ctypes.cast(getattr(api, name), ctypes.c_void_p).value

    return Python(
        capsule=address("PyCapsule_GetPointer"),
        take=address("Py_IncRef"),
        drop=address("Py_DecRef"),
        release=address("PyEval_SaveThread"),
        resume=address("PyEval_RestoreThread"),
        new_array=table[_NEW],
        set_base=table[_SET_BASE],
        none=id(None),
        array_type=id(np.ndarray),
        **_PLACES,
    )


def _is_known() -> bool:
    """Return whether arrays of different shapes and types have their fields at the expected offsets."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or np.ndarray.__basicsize__ < _PLACES["flags_at"] + 4:
        return False
    known: list[np.ndarray] = [
        np.empty((3, 5), np.float32),
        np.zeros((2, 7))[:, ::2],
        np.arange(11),
        np.empty((4, 1), ">f8"),
    ]
    return all(_has_places(array) for array in known)


def _has_places(array: np.ndarray) -> bool:
    at, place = id(array), _PLACES

    def whole(base: int, name: str) -> int:
        return ctypes.c_int.from_address(base + place[name]).value

    def pointer(base: int, name: str) -> int:
        return ctypes.c_void_p.from_address(base + place[name]).value or 0

    if pointer(at, "type_at") != id(np.ndarray) or pointer(at, "dtype_at") != id(array.dtype):
        return False
    if pointer(at, "data_at") != array.ctypes.data or whole(at, "axes_at") != array.ndim:
        return False
    shape = (ctypes.c_ssize_t * array.ndim).from_address(pointer(at, "shape_at"))
    flags, dtype = whole(at, "flags_at"), id(array.dtype)
    return (
        tuple(shape) == array.shape
        and bool(flags & 1) == array.flags.c_contiguous
        and bool(flags & 0x100) == array.flags.aligned
        and bool(flags & 0x400) == array.flags.writeable
        and whole(dtype, "number_at") == array.dtype.num
        and ctypes.c_char.from_address(dtype + place["order_at"]).value.decode() == array.dtype.byteorder
    )


@functools.cache
def strides_at() -> int:
    """Return the offset of an array's strides; 0 if it is unknown."""
    array = np.zeros((3, 8), np.int16)[:, ::2]
    at = ctypes.c_void_p.from_address(id(array) + _STRIDES).value
    known = at is not None and tuple((ctypes.c_ssize_t * 2).from_address(at)) == array.strides
    return _STRIDES if known else 0
