"""Loops in C around a kernel and around the thread pool, compiled when they are needed."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hbtvm
from hbtvm.runtime.memory import aligned, empty
from hbtvm.runtime.package.file import KernelEntry

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""DLPack's codes of types."""

_NATIVE = Path(hbtvm.__file__).parent / "native"


class _Array(ctypes.Structure):
    """``struct array`` of kernel_loop.c."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
    )


def compiled(names: Sequence[Path], *more: str) -> ctypes.CDLL:
    """Compile C files into a shared library and load it.

    Raises
    ------
    RuntimeError
        If the compiler refuses.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        library = Path(folder, "loop.so")
        command = ["gcc", "-std=c11", "-O3", "-fPIC", "-shared", "-o", str(library), *map(str, names), *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"gcc: {done.stderr.strip()}")
        return ctypes.CDLL(str(library))


@functools.cache
def _kernel_loop() -> ctypes.CDLL:
    loop = compiled([Path(__file__).with_name("kernel_loop.c")])
    loop.kernel_seconds.restype = ctypes.c_double
    loop.kernel_seconds.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
    ]  # fmt: skip
    return loop


class KernelLoop:
    """A kernel of a package, called from C on one row tile after the other.

    Parameters
    ----------
    entry
        The kernel.
    rows
        Shape (n, features), of the kernel's type: the first row of each tile; the others are zeros.

    Attributes
    ----------
    scores
        What the last call made, as the kernel lays it out.
    """

    def __init__(self, entry: KernelEntry, rows: np.ndarray) -> None:
        signature = entry.signature
        tiles = empty((len(rows), *signature.rows.sizes(tiles=1)[1:]), signature.rows.dtype)
        tiles[...] = 0
        tiles[:, 0] = rows
        self._rows = tiles
        self.scores = empty(signature.scores.sizes(tiles=1), signature.scores.dtype)
        self._tables = [aligned(table) for table in entry.tables]
        self._shapes = []
        arrays = [self._described(one) for one in (tiles[:1], *self._tables, self.scores)]
        self._arrays = (_Array * len(arrays))(*arrays)
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
            path = Path(folder, "kernel.so")
            path.write_bytes(entry.library)
            self._library = ctypes.CDLL(str(path))
        self._function = ctypes.cast(self._library["__tvm_ffi_main"], ctypes.c_void_p)

    def _described(self, array: np.ndarray) -> _Array:
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._shapes.append(shape)
        return _Array(
            array.ctypes.data, shape, array.ndim, _CODES[array.dtype.kind], 8 * array.dtype.itemsize
        )

    def seconds(self, calls: int) -> float:
        """Seconds per call, over so many calls.

        Raises
        ------
        RuntimeError
            If the kernel fails.
        """
        step, tiles = self._rows[:1].nbytes, len(self._rows)
        found: float = _kernel_loop().kernel_seconds(
            self._function, self._arrays, len(self._arrays), step, tiles, calls
        )
        if found < 0:
            raise RuntimeError("the kernel failed")
        return found


def hand_off_seconds(threads: int, work: float, pause: float, calls: int) -> float:
    """Seconds that a shared call takes longer than the work of each thread.

    Parameters
    ----------
    threads
        That share a call, the caller included.
    work
        Seconds that each of them is busy.
    pause
        Seconds between calls.
    calls
        To average over.

    Raises
    ------
    RuntimeError
        If there are no threads to be had.
    """
    found: float = _pool_loop().hand_off_seconds(threads, work, pause, calls)
    if found < 0:
        raise RuntimeError("there is no memory for threads")
    return found


@functools.cache
def _pool_loop() -> ctypes.CDLL:
    sources = [Path(__file__).with_name("pool_loop.c"), _NATIVE / "executor/pool.c"]
    loop = compiled(sources, f"-I{_NATIVE}", "-lpthread")
    loop.hand_off_seconds.restype = ctypes.c_double
    loop.hand_off_seconds.argtypes = [ctypes.c_int64, ctypes.c_double, ctypes.c_double, ctypes.c_int64]
    return loop
