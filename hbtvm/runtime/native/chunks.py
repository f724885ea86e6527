"""Layout of pyarrow's chunked arrays of texts, for ``chunks.c``.

``pyarrow.ChunkedArray`` points to C++'s ``arrow::ChunkedArray``, whose chunks are ``arrow::StringArray`` and
``arrow::LargeStringArray``. Their fields are part of the binary interface that Arrow's headers compile into
other libraries, but differ between C++ compilers and may change with Arrow's version: this module checks them
against known arrays before use. Reading a text so touches six cache lines; Arrow's C stream interface, the
fallback, creates and destroys a dozen objects.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from typing import Any

_CHUNKED, _WORDS = 6, 6  # word of a Python object that points to its C++ object, and words read of each


@functools.cache
def chunk_types() -> tuple[int, int, int] | None:
    """Return the addresses of pyarrow.ChunkedArray and of C++'s types of texts, short and large.

    None if the layout of pyarrow's arrays is unknown. pyarrow must be loaded.
    """
    arrow = sys.modules["pyarrow"]
    if ctypes.sizeof(ctypes.c_void_p) != 8 or arrow.ChunkedArray.__basicsize__ < 8 * (_CHUNKED + 1):
        return None
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        text, large = (_type_of(memory, getattr(arrow, name)()) for name in ("string", "large_string"))
    except (OSError, OverflowError, struct.error):  # a field that is not an address
        return None
    finally:
        os.close(memory)
    return (id(arrow.ChunkedArray), text, large) if text and large and text != large else None


def _type_of(memory: int, type_: Any) -> int:
    """Return the address of a type's C++ object; 0 if known arrays of texts have another layout."""
    arrow = sys.modules["pyarrow"]
    whole = arrow.array(["a", "bcd", None, "", "ef"], type_)
    arrays = [whole, whole.slice(1, 3), whole.slice(4), arrow.array(["", "xyz"], type_)]
    found = {_checked(memory, arrow.chunked_array([array]), array) for array in arrays}
    several = arrow.chunked_array([whole, *arrays])
    found |= {_checked(memory, several, whole, len(arrays) + 1)}
    found |= {_checked(memory, several.slice(6, 2), whole.slice(1, 2))}
    return found.pop() if len(found) == 1 else 0


def _checked(memory: int, chunked: Any, first: Any, chunks: int = 1) -> int:
    """Return the address of a chunked array's C++ type; 0 for another layout. `first`: its first chunk."""

    def words(at: int, count: int = _WORDS) -> tuple[int, ...]:
        return struct.unpack(f"={count}Q", os.pread(memory, 8 * count, at))

    begin, end = words(words(id(chunked), _CHUNKED + 1)[_CHUNKED])[:2]
    if end - begin != 16 * chunks:
        return 0
    _, data, _, valid, offsets, texts = words(words(begin)[0])
    type_at, _, length, _, offset, _ = words(data)
    buffers = [0 if buffer is None else buffer.address for buffer in first.buffers()]
    width = 8 if str(first.type).startswith("large") else 4
    expected = (len(first), first.offset, buffers[0], buffers[1] + width * first.offset, buffers[2])
    return type_at if (length, offset, valid, offsets, texts) == expected else 0
