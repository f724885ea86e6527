"""Keys: int64 numbers in the order of float64 numbers, which devices without float64 compare.

The key of a number that is not negative is its bits; that of a negative number is the negative of its
magnitude's bits. So both zeros have key 0, and keys compare as the numbers do. The key of NaN is the largest
int64 number, beyond infinity; operations on keys know it, as no comparison with NaN holds.

A kernel's source names its arrays of keys in a line (see `hbtvm.compiler.lowering.cuda.keys`).
"""

from __future__ import annotations

import re

import numpy as np

KEYS = "// Keys:"
"""Start of the line that names a kernel's arrays of keys."""

ROWS = "rows"
"""The name of rows, of which the kernel makes keys."""

NAN = np.iinfo(np.int64).max
"""The key of NaN."""

_LINE = re.compile(rf"^{KEYS} (.*)$".encode(), re.MULTILINE)


def arrays_of_keys(source: bytes) -> frozenset[str]:
    """Return the names of a kernel's arrays of keys; none if it compares no keys."""
    line = _LINE.search(source)
    return frozenset(line[1].decode().split() if line else ())


def to_keys(numbers: np.ndarray) -> np.ndarray:
    """Return the keys of float64 numbers, int64, of their shape."""
    bits = numbers.view(np.int64)
    keys = np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
    return np.where(np.isnan(numbers), NAN, keys)
