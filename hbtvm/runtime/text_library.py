"""The compiled code that cuts texts into terms: its functions, and what they take, as `text.c` declares it."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hbtvm.errors import PackageError
from hbtvm.runtime.threads import ThreadPool

_VERSION = 2
"""That of `text.c`: what its functions take."""

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


class StageFields(ctypes.Structure):
    """``struct stage``."""

    _fields_ = (("kind", _I64), ("scale", _POINTER), ("place", _POINTER))


class TextFields(ctypes.Structure):
    """``struct text``."""

    _fields_ = (
        ("analyzer", _I64), ("whole", _I64), ("least", _I64), ("shortest", _I64), ("longest", _I64),
        ("lowercase", _I64), ("plain", _I64), ("token_ranges", _POINTER), ("space_ranges", _POINTER), ("class_page", _POINTER), ("classes", _POINTER),
        ("map_page", _POINTER), ("maps", _POINTER), ("expansions", _POINTER), ("hashed", _I64),
        ("alternate_sign", _I64), ("stop_words", _I64), ("slots", _POINTER), ("bits", _I64), ("pool", _POINTER),
        ("stages", _I64), ("stage", _POINTER), ("ahead", _POINTER), ("terms", _I64), ("width", _I64),
        ("outputs", _I64), ("weight", _POINTER),
    )  # fmt: skip


class InputFields(ctypes.Structure):
    """``struct input``."""

    _fields_ = (
        ("bytes", _POINTER), ("offsets", _POINTER), ("wide", _I64), ("rows", _POINTER), ("values", _POINTER),
    )  # fmt: skip


class Functions(NamedTuple):
    """The functions. Those that begin with ``one`` and `read` keep the interpreter locked.

    Attributes
    ----------
    sums, rows
        Weighted sums, and sparse rows, of many texts.
    one_sums, one_row
        Of one text.
    fill
        Fills a table with terms.
    read, release
        Reads Python's objects, and frees what was read.
    """

    sums: Any
    rows: Any
    one_sums: Any
    one_row: Any
    fill: Any
    read: Any
    release: Any


class TextLibrary:
    """The compiled code of a package, loaded when it is first called.

    Parameters
    ----------
    code
        The shared library.
    pool
        Threads that share long calls; None for the calling thread alone.
    """

    def __init__(self, code: bytes, pool: ThreadPool | None = None) -> None:
        self._code, self.pool = code, pool
        self._functions: Functions | None = None

    def functions(self) -> Functions:
        """The functions.

        Raises
        ------
        PackageError
            If they can't be loaded, or take other arguments than this release passes.
        """
        if self._functions is None:
            with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
                path = Path(folder, "text.so")
                try:
                    path.write_bytes(self._code)
                    released, locked = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
                    version = int(released.hbtvm_text_version())
                    functions = _found(released, locked) if version == _VERSION else None
                except (OSError, AttributeError) as error:
                    reason = str(error).replace(str(path), "it")
                    raise PackageError(
                        f"the library for texts can't be loaded from {folder}: {reason}."
                    ) from None
            if functions is None:
                raise PackageError(
                    f"the library for texts has version {version}, but this hbtvm calls version {_VERSION}; "
                    "compile the model again"
                )
            self._functions = functions
        return self._functions


def _found(released: Any, locked: Any) -> Functions:
    found = Functions(
        released.hbtvm_text_sums,
        released.hbtvm_text_rows,
        locked.hbtvm_text_one,
        locked.hbtvm_text_row,
        released.hbtvm_text_fill,
        locked.hbtvm_text_read,
        locked.hbtvm_text_release,
    )
    found.sums.argtypes = [_POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER]
    found.rows.argtypes = [_POINTER, _POINTER, _I64, _I64, _I64, _I64, *[_POINTER] * 5]
    found.one_sums.argtypes = [_POINTER, ctypes.c_char_p, _I64, _POINTER]
    found.one_row.argtypes = [_POINTER, ctypes.c_char_p, _I64, _I64, _I64, _POINTER, _POINTER]
    found.fill.argtypes = [_POINTER, _I64, _POINTER, _POINTER, _I64, _I64]
    found.read.argtypes = [_POINTER, _POINTER, _I64, _I64, _I64, ctypes.c_char_p, _I64, _POINTER]
    found.release.argtypes = [_POINTER]
    for function in found:
        function.restype = _I64
    found.fill.restype = found.release.restype = None
    return found
