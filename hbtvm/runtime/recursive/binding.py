"""The structures and functions of ``recursive.h``, field by field."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from hbtvm.errors import PackageError
from hbtvm.runtime.native.library import Library

VERSION = 1  # ``HBTVM_RECURSIVE_VERSION``
ROLES = ("state", "child", "number", "vector", "scratch", "table", "span", "out")  # ``enum recursive_role``
SHARES = ("none", "structures", "nodes", "panels")  # ``enum recursive_share``
OVERS = ("roots", "nodes", "total", "mean", "most")  # ``enum recursive_over``

NO_MEMORY = 1
BAD_ARRAYS, CYCLE, CHILD_OUTSIDE, MANY_CHILDREN, NUMBER_OUTSIDE, MORE_RESULTS, TOO_LARGE = range(20, 27)
"""``enum recursive_status``."""

_I32, _I64, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


class Argument(ctypes.Structure):
    """``struct recursive_argument``."""

    _fields_ = (("role", _I32), ("number", _I32))


class Step(ctypes.Structure):
    """``struct recursive_step``."""

    _fields_ = (
        ("function", _POINTER), ("self", _POINTER), ("arguments", _POINTER), ("count", _I64),
        ("panels", _I64),
    )  # fmt: skip


class Steps(ctypes.Structure):
    """``struct recursive_steps``."""

    _fields_ = (("step", _POINTER), ("count", _I64), ("tile", _I64))


class Program(ctypes.Structure):
    """``struct recursive_program``."""

    _fields_ = (
        ("main", Steps), ("tail", Steps), ("tail_most", _I64), ("scratch", _POINTER), ("scratches", _I64),
    )  # fmt: skip


class Kernels(ctypes.Structure):
    """``struct recursive_kernels``."""

    _fields_ = (
        ("structures", _I64), ("threads", _I64), ("seconds", ctypes.c_double), ("share", _I32),
        ("depth", _I32), ("program", Program * 3), ("tables", _POINTER), ("count", _I64),
    )  # fmt: skip


class Input(ctypes.Structure):
    """``struct recursive_input``."""

    _fields_ = (("is_vector", _I64), ("size", _I64), ("optional", _I64))


class Model(ctypes.Structure):
    """``struct recursive_model``."""

    _fields_ = (
        ("version", _I64), ("children", _I64), ("width", _I64), ("state", _I64), ("rows", _I64),
        ("columns", _I64), ("over", _I64), ("inputs", _POINTER), ("input_count", _I64),
        ("kernels", _POINTER), ("count", _I64),
    )  # fmt: skip


class Batch(ctypes.Structure):
    """``struct recursive_batch``."""

    _fields_ = (
        ("structures", _I64), ("nodes", _I64), ("edges", _I64), ("starts", _POINTER), ("first", _POINTER),
        ("child", _POINTER), ("inputs", _POINTER),
    )  # fmt: skip


class Place(ctypes.Structure):
    """``struct recursive_place``."""

    _fields_ = (("structure", _I64), ("node", _I64), ("input", _I64))


class Rows(ctypes.Structure):
    """``struct recursive_rows`` of ``recursive/rows.h``."""

    _fields_ = (
        ("own", _POINTER), ("levels", _I64), ("start", _POINTER), ("widest", _I64), ("arity", _I64),
        ("results", _I64), ("first_read", _I64),
    )  # fmt: skip


_SIZED = (Argument, Step, Steps, Program, Kernels, Input, Model, Batch, Place)

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "hbtvm_recursive_version": (_I64, []),
    "hbtvm_recursive_size": (_I64, [_I64]),
    "hbtvm_recursive_open": (_POINTER, [_POINTER, _I64]),
    "hbtvm_recursive_close": (None, [_POINTER]),
    "hbtvm_recursive_check": (_I64, [_POINTER]),
    "hbtvm_recursive_choice": (_I64, [_POINTER, _I64]),
    "hbtvm_recursive_run": (ctypes.c_int, [_POINTER, _POINTER, _POINTER, _POINTER, _I64, _POINTER]),
    "hbtvm_recursive_levels": (_I64, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
}


_BY_ROW: dict[str, tuple[Any, list[Any]]] = {
    "hbtvm_recursive_begin": (ctypes.c_int, [_POINTER, _POINTER, _POINTER, _POINTER]),
    "hbtvm_recursive_fill": (None, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "hbtvm_recursive_read": (ctypes.c_int, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "hbtvm_recursive_end": (None, [_POINTER, _POINTER]),
    "hbtvm_recursive_rows_size": (_I64, []),
}


@lru_cache(maxsize=16)
def bind_rows(library: Library) -> Library:
    """Check and return a library whose functions serve kernels on a GPU; errors as for `bind`."""
    bind(library)
    library.declare(_BY_ROW)
    if int(library.recursive_rows_size()) != ctypes.sizeof(Rows):
        raise PackageError("the package is damaged: its executor has other structures than its version.")
    return library


@lru_cache(maxsize=16)
def bind(library: Library) -> Library:
    """Check and return a library with the executor of recursive models.

    Raises `PackageError` if it has no such executor, or another version.
    """
    library.declare(_FUNCTIONS)
    version = int(library.recursive_version())
    if version != VERSION:
        raise PackageError(
            f"the package's executor of recursive models has version {version}, but this hbtvm calls version "
            f"{VERSION}; compile the model again."
        )
    sizes = [int(library.recursive_size(i)) for i in range(len(_SIZED))]
    if sizes != [ctypes.sizeof(kind) for kind in _SIZED]:
        raise PackageError("the package is damaged: its executor has other structures than its version.")
    return library
