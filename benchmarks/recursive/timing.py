"""``timing.c``, compiled and loaded."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("timing.c")


@functools.cache
def library() -> ctypes.CDLL:
    """Its functions.

    Raises
    ------
    OSError, subprocess.CalledProcessError
        If there is no gcc, or it refuses.
    """
    options = ["-std=gnu11", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    with tempfile.TemporaryDirectory(prefix="timing-") as folder:
        made = Path(folder, "timing.so")
        subprocess.run(["gcc", *options, str(_SOURCE), "-o", str(made), "-lm"], check=True)
        loaded = ctypes.CDLL(str(made))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    loaded.read_seconds.argtypes = [pointer, number, number, number]
    loaded.levels_seconds.argtypes = [*[pointer] * 6, number]
    for function in (loaded.read_seconds, loaded.levels_seconds):
        function.restype = ctypes.c_double
    return loaded
