"""A loaded executor: the functions of ``executor.h`` and ``numpy.c``."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hbtvm.errors import PackageError
from hbtvm.runtime.native.arrays import dict_interface, interface, strides_at
from hbtvm.runtime.native.blocks import block_places, placement_places
from hbtvm.runtime.native.counters import counter_functions
from hbtvm.runtime.native.objects.loading import closing, open_library
from hbtvm.runtime.native.structures import SIZED, VERSION, MethodDefinition
from hbtvm.runtime.rows.matrix import Interleave

_ONE_ARGUMENT = 0x8  # ``METH_O``

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "hbtvm_version": (ctypes.c_int64, []),
    "hbtvm_size": (ctypes.c_int64, [ctypes.c_int64]),
    "hbtvm_open": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int64]),
    "hbtvm_close": (None, [ctypes.c_void_p]),
    "hbtvm_check": (ctypes.c_int64, [ctypes.c_void_p]),
    "hbtvm_steps": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]),
    "hbtvm_run": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
         ctypes.c_int64, ctypes.c_void_p],
    ),
    "hbtvm_sums": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64],
    ),
    "hbtvm_finish": (
        ctypes.c_int64,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p],
    ),
    "hbtvm_numpy_begin": (None, [ctypes.c_void_p]),
    "hbtvm_numpy_call": (ctypes.py_object, [ctypes.py_object, ctypes.py_object]),
}  # fmt: skip


_INTERLEAVE: list[Any] = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]


class Library:
    """The executor's code.

    `loaded`: the shared library.
    `calls_arrays`: whether its function reads and creates numpy arrays directly; else `ctypes` passes
        addresses.
    `poisons`: whether it can set score memory to NaN before each call of a kernel.
    `poisons_states`: whether it can set the states of recursive models to NaN before each call.
    `reads_frames`: whether its functions can read frames of pandas; False in packages of releases without it.
    `interleave`: its `hbtvm.runtime.rows.matrix.Interleave`; None in packages of releases without it.
    `counters`: its functions for counters of categories; None likewise.
    Raises `PackageError` if it has another interface than this release calls.
    """

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._loaded = loaded
        self.declare(_FUNCTIONS)
        self._call = loaded.hbtvm_numpy_call
        version = int(loaded.hbtvm_version())
        if version != VERSION:
            raise PackageError(
                f"the package's executor has version {version}, but this hbtvm calls version {VERSION}; "
                "compile the model again."
            )
        sizes = [int(loaded.hbtvm_size(i)) for i in range(len(SIZED))]
        if sizes != [ctypes.sizeof(structure) for structure in SIZED]:
            raise PackageError("the package is damaged: its executor has other structures than its version.")
        self.poisons = self._has("hbtvm_poison", [ctypes.c_void_p, ctypes.c_int64])
        self.poisons_states = self._has("hbtvm_recursive_poison", [ctypes.c_void_p, ctypes.c_int64])
        self.interleave: Interleave | None = None
        if hasattr(loaded, "hbtvm_interleave"):
            loaded.hbtvm_interleave.restype, loaded.hbtvm_interleave.argtypes = None, _INTERLEAVE
            self.interleave = loaded.hbtvm_interleave
        self.counters = counter_functions(loaded)
        self._python = interface()
        self.calls_arrays = self._python is not None
        if self._python is not None:
            loaded.hbtvm_numpy_begin(ctypes.byref(self._python))
        self.reads_frames = self.calls_arrays and hasattr(loaded, "hbtvm_frame_call")
        if self.reads_frames:
            loaded.hbtvm_numpy_strides.restype, loaded.hbtvm_numpy_strides.argtypes = None, [ctypes.c_int64]
            loaded.hbtvm_numpy_strides(strides_at())
            if self._has("hbtvm_frame_chunks", []):
                loaded.hbtvm_frame_chunks()
            if self._has("hbtvm_dicts", [ctypes.c_void_p]):
                loaded.hbtvm_dicts(ctypes.byref(dict_interface()))
        # Functions refer to their definition for life.
        self._definition = _definition(self._call)
        self._frame_definition = _definition(loaded.hbtvm_frame_call) if self.reads_frames else None

    def declare(self, functions: Mapping[str, tuple[Any, list[Any]]]) -> None:
        """Declare result and argument types of functions by name.

        Raises `PackageError` if the library lacks a function.
        """
        try:
            for name, (result, arguments) in functions.items():
                function = getattr(self._loaded, name)
                function.restype, function.argtypes = result, arguments
        except AttributeError as error:
            raise PackageError(f"the package is damaged: its executor lacks a function ({error}).") from None

    def _has(self, name: str, arguments: list[Any]) -> bool:
        """Declare a function without a result, if the library has it; return whether it does."""
        if not hasattr(self._loaded, name):
            return False
        self.declare({name: (None, arguments)})
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, f"hbtvm_{name}")

    def function(self, address: int, owner: Any, frames: bool = False) -> Any:
        """Return a Python function from an array of rows to an array of results.

        `address`: address of a `structures.BoundOutput`.
        `owner`: object that keeps it and this library alive; the function keeps the object alive.
        `frames`: whether it also takes frames of pandas and dicts; `address` is then of a
            `frames.BoundFrames`.
        """
        definition = self._frame_definition if frames else self._definition
        assert definition is not None
        if frames and "pandas" in sys.modules and self._has("hbtvm_frame_places", [ctypes.c_void_p]):
            places = block_places()
            if places is not None:
                self._loaded.hbtvm_frame_places(ctypes.byref(places))
            placements = placement_places()
            if placements is not None and self._has("hbtvm_placement_places", [ctypes.c_void_p]):
                self._loaded.hbtvm_placement_places(ctypes.byref(placements))
        api = ctypes.pythonapi
        capsule = api.PyCapsule_New
        capsule.restype = ctypes.py_object
        capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        new = api.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
        # The last argument is meant for a module; the function keeps any object alive.
        return new(ctypes.addressof(definition), capsule(address, None, None), owner)


def _definition(function: Any) -> MethodDefinition:
    return MethodDefinition(b"call", ctypes.cast(function, ctypes.c_void_p), _ONE_ARGUMENT, None)


class Function:
    """A kernel's function.

    `address`, `handle`: addresses of the function and of its first argument.
    """

    def __init__(self, address: int, handle: int = 0, owner: Any = None) -> None:
        self.address, self.handle, self._owner = address, handle, owner

    @classmethod
    def of_tvm(cls, function: Any) -> Function:
        """Wrap a function of TVM in this process."""
        # The function's address follows the object's header of 24 bytes.
        handle = int(function.__chandle__())
        return cls(ctypes.c_void_p.from_address(handle + 24).value or 0, handle, function)


def load_kernels(libraries: Sequence[bytes]) -> list[Function]:
    """Load shared libraries of kernels and return each library's function.

    A library is unloaded with its function. Raises `PackageError` if one can't be loaded.
    """
    functions: dict[bytes, Function] = {}
    for library in libraries:
        if library not in functions:
            (functions[library],) = _functions(library, ("main",), "a kernel's library")
    return [functions[library] for library in libraries]


def load_kernel(path: str) -> Function:
    """Load a library file as `load_kernels` does."""
    return load_kernels([Path(path).read_bytes()])[0]


def load_functions(library: bytes, names: Sequence[str]) -> list[Function]:
    """Load a shared library of kernels and return its functions by name; it is unloaded with them.

    Raises `PackageError` if it can't be loaded, or lacks a function.
    """
    return _functions(library, names, "a library of kernels")


def _functions(library: bytes, names: Sequence[str], title: str) -> list[Function]:
    loaded = closing(open_library(library, title))
    try:
        # Casting functions would create reference cycles, which keep the library loaded.
        places = [ctypes.addressof(ctypes.c_char.in_dll(loaded, f"__tvm_ffi_{name}")) for name in names]
    except ValueError as error:
        raise PackageError(f"{title} can't be loaded: {str(error).replace(loaded._name, 'it')}.") from None
    return [Function(place, 0, loaded) for place in places]


@functools.lru_cache(maxsize=16)
def load_library(code: bytes) -> Library:
    """Load an executor; equal code is loaded once.

    Raises `PackageError` if it can't be loaded, or has an interface of another version.
    """
    return Library(open_library(code, "the package's executor"))
