"""Convert tables to the bytes of numpy's `.npy` files and back: version 1.0, numbers only."""

from __future__ import annotations

import io
import math

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.memory import empty


def table_bytes(table: np.ndarray) -> bytes:
    """Return the `.npy` file of a table.

    Raises `PackageError` if it holds other values than numbers.
    """
    if table.dtype.hasobject:
        raise PackageError(f"can't pack a table of {table.dtype}: only numbers are stored.")
    file = io.BytesIO()
    little = table.astype(table.dtype.newbyteorder("<"), order="C", copy=False)
    np.lib.format.write_array(file, little, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def table_from_bytes(name: str, data: memoryview) -> np.ndarray:
    """Return the table of a `.npy` file, in aligned memory and read-only.

    Raises `PackageError` if it is not such a file, or holds other values than numbers. The text continues a
    sentence that begins with the package.
    """
    try:
        shape, fortran, dtype, start = array_header(data)
    except ValueError:
        raise PackageError(f"is damaged: {name!r} is not a table") from None
    if dtype.hasobject or dtype.kind not in "iuf" or dtype.byteorder == ">" or fortran:
        raise PackageError(f"is damaged: {name!r} holds {dtype}, expected plain numbers")
    # Checked before allocation, because a header can state any shape.
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - start:
        raise PackageError(f"is damaged: {name!r} is not as large as its shape {shape} says")
    table = empty(shape, dtype)
    table.reshape(-1)[:] = np.frombuffer(data, dtype, offset=start)
    table.setflags(write=False)
    return table


def array_header(data: bytes | memoryview) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return a `.npy` file's shape, whether it is in Fortran order, its dtype, and the offset of its data.

    Raises `ValueError` if it is not such a file of version 1.0.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"it is of version {version}; expected (1, 0)")
        return (*np.lib.format.read_array_header_1_0(file), file.tell())
    except ValueError:
        raise
    except Exception as error:  # numpy evaluates the header as Python, which may raise anything
        raise ValueError(f"its header is damaged ({type(error).__name__})") from None
