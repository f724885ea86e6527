"""Load shared objects from bytes in memory, so that no file stays behind."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import itertools
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from hbtvm.errors import PackageError
from hbtvm.runtime.native.objects.elf import problem

_number = itertools.count()


def open_library(code: bytes, title: str) -> ctypes.CDLL:
    """Load a shared object permanently; see `closing`.

    `code`: the whole file.
    `title`: its name in errors, such as ``"a kernel's library"``.
    Raises `PackageError` if it is damaged, or the operating system refuses it.
    """
    reason = problem(code) if sys.platform == "linux" else None
    reasons = [reason] if reason else []
    places: tuple[Callable[[bytes], contextlib.AbstractContextManager[str]], ...] = (_in_memory, _in_folder)
    for place in () if reason else places:
        path = ""
        try:
            with place(code) as path:
                return ctypes.CDLL(path)
        except OSError as error:
            message = error.strerror or str(error).strip().splitlines()[0]
            reasons.append(message.replace(path, "it") if path else message)
    # Report a reason once, such as a missing symbol.
    text = "; nor from a folder for temporary files (TMPDIR names another): ".join(dict.fromkeys(reasons))
    raise PackageError(f"{title} can't be loaded: {text}.")


def closing(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Unload a library with the last reference to it; each of its functions holds one."""
    finalizer = weakref.finalize(loaded, _ctypes.dlclose, loaded._handle)
    # Daemon threads may still run its code when the interpreter exits.
    finalizer.atexit = False
    return loaded


@contextlib.contextmanager
def _in_memory(code: bytes) -> Iterator[str]:
    """Yield a path to an anonymous file."""
    if not hasattr(os, "memfd_create"):
        raise OSError("there are no files in memory")
    descriptor = os.memfd_create("hbtvm", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(code)
        file.flush()
        # The loader identifies libraries by path, and descriptor numbers are reused: redundant parts make
        # each path unique.
        other = "".join("/." if digit == "0" else "//." for digit in f"{next(_number):b}")
        yield f"/proc/self/fd{other}/{descriptor}"


@contextlib.contextmanager
def _in_folder(code: bytes) -> Iterator[str]:
    # Only this user can read or change files in this folder.
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        path = Path(folder, "library.so")
        path.write_bytes(code)
        yield str(path)
