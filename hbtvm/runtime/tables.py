"""Convert tables to the bytes of numpy's `.npy` files and back: version 1.0, numbers only."""

from __future__ import annotations

import io
import math
from tokenize import TokenError

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.memory import empty


def table_bytes(table: np.ndarray) -> bytes:
    """Return the `.npy` file of a table.

    Raises
    ------
    PackageError
        If it holds anything but numbers.
    """
    if table.dtype.hasobject:
        raise PackageError(f"can't pack a table of {table.dtype}: only numbers are stored.")
    file = io.BytesIO()
    little = table.astype(table.dtype.newbyteorder("<"), order="C", copy=False)
    np.lib.format.write_array(file, little, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def table_from_bytes(name: str, data: memoryview) -> np.ndarray:
    """Return the table of a `.npy` file, in aligned memory and read-only.

    Raises
    ------
    PackageError
        If it is no such file, or holds anything but numbers. The text continues a sentence
        that begins with the package.
    """
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another version")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    except (ValueError, TypeError, TokenError, RecursionError, MemoryError):
        raise PackageError(f"is damaged: {name!r} is no table") from None
    if dtype.hasobject or dtype.kind not in "iuf" or dtype.byteorder == ">" or fortran:
        raise PackageError(f"is damaged: {name!r} holds {dtype}, expected plain numbers")
    # Checked before memory is allocated: a header can claim any shape.
    start = file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - start:
        raise PackageError(f"is damaged: {name!r} is not as large as its shape {shape} says")
    table = empty(shape, dtype)
    table.reshape(-1)[:] = np.frombuffer(data, dtype, offset=start)
    table.setflags(write=False)
    return table
