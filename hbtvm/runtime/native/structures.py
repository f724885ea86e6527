"""The structures of ``executor.h`` and ``numpy.c``, field by field."""

from __future__ import annotations

import ctypes

from hbtvm.runtime.native.epilogues.epilogue import EpilogueFields

VERSION = 1  # ``HBTVM_EXECUTOR_VERSION``

FLOAT32, FLOAT64 = 0, 1  # ``enum type``

SHARING = {"none": 0, "rows": 1, "trees": 2}  # ``enum sharing``

_I64, _POINTER, _DOUBLE = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double


class Table(ctypes.Structure):
    """``struct table``."""

    _fields_ = (
        ("data", _POINTER), ("shape", _POINTER), ("axes", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("splits", ctypes.c_uint16),
    )  # fmt: skip


class Kernel(ctypes.Structure):
    """``struct kernel``."""

    _fields_ = (
        ("function", _POINTER), ("self", _POINTER), ("tables", _POINTER), ("count", _I64), ("rows", _I64),
        ("seconds", _DOUBLE), ("threads", _I64), ("over", _I64), ("grain", _I64), ("row_tile", _I64),
        ("groups", _I64), ("width", _I64), ("by_row", _I64), ("type", _I64), ("takes_missing", _I64),
    )  # fmt: skip


class Kernels(ctypes.Structure):
    """``struct kernels``."""

    _fields_ = (("kernel", _POINTER), ("count", _I64), ("type", _I64))


class Stage(ctypes.Structure):
    """``struct stage``."""

    _fields_ = (
        ("sets", _POINTER), ("count", _I64), ("columns", _POINTER), ("read", _I64), ("outputs", _I64),
    )  # fmt: skip


class Model(ctypes.Structure):
    """``struct model``."""

    _fields_ = (
        ("version", _I64), ("columns", _I64), ("stages", _POINTER), ("count", _I64), ("divisor", _DOUBLE),
        ("base", _POINTER), ("refuses", _POINTER), ("telling", _I64), ("telling_column", _I64),
    )  # fmt: skip


class Step(ctypes.Structure):
    """``struct plan_step``."""

    _fields_ = (("kernel", _I64), ("start", _I64), ("stop", _I64), ("threads", _I64))


class Results(ctypes.Structure):
    """``struct results``."""

    _fields_ = (
        ("epilogue", _POINTER), ("ready", _I64), ("number", _I64), ("item", _I64), ("axes", _I64),
        ("columns", _I64),
    )  # fmt: skip


class Python(ctypes.Structure):
    """``struct python``."""

    _fields_ = (
        ("capsule", _POINTER), ("take", _POINTER), ("drop", _POINTER), ("release", _POINTER),
        ("resume", _POINTER), ("new_array", _POINTER), ("set_base", _POINTER), ("none", _POINTER),
        ("array_type", _POINTER), ("type_at", _I64), ("data_at", _I64), ("axes_at", _I64),
        ("shape_at", _I64), ("dtype_at", _I64), ("flags_at", _I64), ("number_at", _I64), ("order_at", _I64),
    )  # fmt: skip


class BoundOutput(ctypes.Structure):
    """``struct bound_output``."""

    _fields_ = (
        ("executor", _POINTER), ("columns", _I64), ("threads", _I64), ("numbers", _I64 * 2),
        ("results", Results * 2), ("nanoseconds", _I64 * 64),
    )  # fmt: skip


class MethodDefinition(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", _POINTER), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


SIZED = (Table, Kernel, Kernels, Stage, Model, EpilogueFields, Results, Python, BoundOutput)
"""In the order of sizes in ``hbtvm_size``."""
