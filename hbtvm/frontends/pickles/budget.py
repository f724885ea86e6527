"""A bound of the memory of a pickle's values, in proportion to the file's size."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles.records import Global, Record, kind_of
from hbtvm.frontends.pickles.source import size_in_words

_TIMES = 9  # bytes of memory for each byte of the file
_AT_LEAST = 80 << 20  # bytes of memory for any file

_ARRAY_TIMES, _ARRAYS_AT_LEAST = 2, 16 << 20
"""Bytes of all arrays for each byte of the file, and for any file: two arrays may share bytes."""

_ODD_KEYS = 4096
"""Bound of the dictionaries' keys whose hashes a file can choose, so that look-ups stay fast."""

_DEEPEST_KEY = 3  # bound of nested tuples of a key, as hashing recurses in C


class Budget:
    """An upper estimate of the memory of values.

    `spent`: bytes so far; it never falls, so that it also bounds the work.
    `arrays`: bytes of arrays so far.
    `allowed`: bytes that the user allows whatever the file's size; 0 by default.
    """

    def __init__(self, allowed: int = 0) -> None:
        self.spent = 0
        self.arrays = 0
        self.allowed = allowed
        self._odd_keys = 0

    def check(self, seen: int, stack: int) -> None:
        """Raise `ModelError` if values take too much memory for the file's size.

        `seen`: bytes of the file read so far.
        `stack`: bytes of the stack.
        """
        if self.arrays > max(_ARRAY_TIMES * seen + _ARRAYS_AT_LEAST, self.allowed):
            raise ModelError(
                f"expected a pickled model, but it is damaged: its arrays have "
                f"{size_in_words(self.arrays)}, far more than the {size_in_words(seen)} of file."
            )
        most = max(_TIMES * seen + _AT_LEAST, self.allowed)
        if self.spent + stack > most:
            raise ModelError(
                f"the pickle's objects take more than {size_in_words(most)} of memory, far more than a model "
                f"in {size_in_words(seen)} of file needs; if the file is sound, allow it with max_bytes=... "
                "(in the shell: --max-size)."
            )

    def key(self, value: Any) -> Any:
        """Return a dictionary's key.

        Raises `ModelError` if it can't be hashed quickly.
        """
        if type(value) is str or value is None or type(value) in (bool, float, bytes):
            return value
        if isinstance(value, memoryview):
            return bytes(value)
        if isinstance(value, (Record, Global)):
            return value
        if isinstance(value, (int, np.generic)) and not isinstance(value, np.void):
            self._odd_keys += isinstance(value, int) and abs(value) >= 1 << 60
        elif (isinstance(value, tuple) and _depth(value) <= _DEEPEST_KEY) or isinstance(value, complex):
            self._odd_keys += 1
        else:
            raise ModelError(f"expected a pickled model, but it is damaged: a key is {kind_of(value)}.")
        if self._odd_keys > _ODD_KEYS and not self.allowed:
            raise ModelError(f"the pickle has more than {_ODD_KEYS} keys that are tuples or huge numbers.")
        return value


def _depth(value: tuple[Any, ...]) -> int:
    """Return the levels of tuples, at most `_DEEPEST_KEY` + 1, also for values that can't be hashed."""
    level, depth = [value], 0
    while level and depth <= _DEEPEST_KEY:
        depth += 1
        below = []
        for part in level:
            for member in part:
                if isinstance(member, tuple):
                    below.append(member)
                elif member is not None and not isinstance(
                    member, (str, int, float, bytes, np.number, np.bool_, Record, Global)
                ):
                    return _DEEPEST_KEY + 1
        level = below
    return depth
