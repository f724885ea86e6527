"""The compiled code that cuts texts into terms: the functions and structures of `text.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from hbtvm.errors import PackageError
from hbtvm.runtime.cpu import check_architecture
from hbtvm.runtime.native.objects.loading import closing, open_library
from hbtvm.runtime.threads import ThreadPool

_VERSION = 2  # version of the interface of `text.c`

_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


class StageFields(ctypes.Structure):
    """``struct stage``."""

    _fields_ = (("kind", _I64), ("scale", _POINTER), ("place", _POINTER))


class TextFields(ctypes.Structure):
    """``struct text``."""

    _fields_ = (
        ("analyzer", _I64), ("whole", _I64), ("least", _I64), ("shortest", _I64), ("longest", _I64),
        ("lowercase", _I64), ("plain", _I64), ("token_ranges", _POINTER),
        ("space_ranges", _POINTER), ("class_page", _POINTER), ("classes", _POINTER),
        ("map_page", _POINTER), ("maps", _POINTER), ("expansions", _POINTER), ("hashed", _I64),
        ("alternate_sign", _I64), ("stop_words", _I64), ("slots", _POINTER), ("bits", _I64),
        ("pool", _POINTER), ("stages", _I64), ("stage", _POINTER), ("ahead", _POINTER), ("terms", _I64),
        ("width", _I64), ("outputs", _I64), ("weight", _POINTER),
    )  # fmt: skip


class InputFields(ctypes.Structure):
    """``struct input``."""

    _fields_ = (
        ("bytes", _POINTER), ("offsets", _POINTER), ("wide", _I64), ("rows", _POINTER), ("values", _POINTER),
    )  # fmt: skip


class Functions(NamedTuple):
    """The functions. Those for one text, and for Python objects, keep the interpreter locked."""

    # `sums`, `rows`: weighted sums, and sparse rows, of many texts
    sums: Any
    rows: Any
    # `one_sums`, `one_row`: the same for one text
    one_sums: Any
    one_row: Any
    fill: Any  # fills a table with terms
    # `object_sums`, `object_rows`: as `sums` and `rows`, for features of Python objects
    object_sums: Any
    object_rows: Any
    # `read`, `release`: read Python texts, and free the result
    read: Any
    release: Any


class TextLibrary:
    """The compiled code of a package, loaded at the first call.

    `code`: the shared library.
    `pool`: threads that share long calls; None for the calling thread only.
    `target`: the package's target; None for code that was compiled here.
    """

    def __init__(
        self, code: bytes, pool: ThreadPool | None = None, target: Mapping[str, Any] | None = None
    ) -> None:
        self._code, self.pool, self._target = code, pool, target
        self._functions: Functions | None = None

    def check(self) -> None:
        """Check that this machine can run the code, if any.

        Raises `PackageError` if it is for another architecture.
        """
        if self._code and self._target is not None and self._target["kind"] == "llvm":
            check_architecture(self._target)

    def functions(self) -> Functions:
        """Return the functions.

        Raises `PackageError` if they can't be loaded here, or have another interface than this release calls.
        """
        if self._functions is None:
            self.check()
            released = closing(open_library(self._code, "the library for texts"))
            locked = ctypes.PyDLL(released._name, handle=released._handle)
            # The functions keep the library alive, so it keeps the finalizer that unloads the code.
            vars(locked)["released"] = released
            try:
                version = int(released["hbtvm_text_version"]())
                functions = _functions_of(released, locked) if version == _VERSION else None
            except AttributeError as error:
                reason = str(error).replace(released._name, "it")
                raise PackageError(f"the library for texts can't be loaded: {reason}.") from None
            if functions is None:
                raise PackageError(
                    f"the library for texts has version {version}, but this hbtvm calls version {_VERSION}; "
                    "compile the model again"
                )
            self._functions = functions
        return self._functions


def _functions_of(released: Any, locked: Any) -> Functions:
    # As attributes, the library would keep them, and so itself, alive.
    functions = Functions(
        released["hbtvm_text_sums"],
        released["hbtvm_text_rows"],
        locked["hbtvm_text_one"],
        locked["hbtvm_text_row"],
        released["hbtvm_text_fill"],
        locked["hbtvm_text_object_sums"],
        locked["hbtvm_text_object_rows"],
        locked["hbtvm_text_read"],
        locked["hbtvm_text_release"],
    )
    functions.sums.argtypes = [_POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER]
    functions.rows.argtypes = [_POINTER, _POINTER, _I64, _I64, _I64, _I64, *[_POINTER] * 5]
    functions.one_sums.argtypes = [_POINTER, ctypes.c_char_p, _I64, _POINTER]
    functions.one_row.argtypes = [_POINTER, ctypes.c_char_p, _I64, _I64, _I64, _POINTER, _POINTER]
    functions.fill.argtypes = [_POINTER, _I64, _POINTER, _POINTER, _I64, _I64]
    functions.object_sums.argtypes = [*[_POINTER] * 4, _I64, _I64, _POINTER]
    functions.object_rows.argtypes = [*[_POINTER] * 4, *[_I64] * 4, *[_POINTER] * 4]
    functions.read.argtypes = [_POINTER] * 3
    functions.release.argtypes = [_POINTER]
    for function in functions:
        function.restype = _I64
    functions.fill.restype = functions.release.restype = None
    return functions
