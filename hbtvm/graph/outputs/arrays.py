"""The array operations that compute outputs, for numpy and for libraries of arrays on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Arrays:
    """Operations of numpy, or of a library that has them by the same names.

    Beside these, arrays have arithmetic with numbers and each other, comparisons, slices, and
    ``table[index]``.

    Parameters
    ----------
    module
        The library.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def cast(self, x: Any, dtype: str) -> Any:
        """Return an array cast to a named dtype; itself, if it has that."""
        return x.astype(dtype, copy=False)

    def exp(self, x: Any) -> Any:
        """e to the power of each value."""
        return self._module.exp(x)

    def log1p(self, x: Any) -> Any:
        """Logarithm of one more than each value."""
        return self._module.log1p(x)

    def at_most(self, x: Any, bound: float) -> Any:
        """Each value, or `bound` in place of a larger one; NaN stays."""
        return self._module.minimum(x, bound)

    def sign(self, x: Any) -> Any:
        """-1, 0 or 1 for each value."""
        return self._module.sign(x)

    def largest(self, x: Any) -> Any:
        """Largest value of each row; shape (n, 1)."""
        return x.max(axis=1, keepdims=True)

    def total(self, x: Any) -> Any:
        """Sum of each row; shape (n, 1)."""
        return x.sum(axis=1, keepdims=True)

    def argmax(self, x: Any) -> Any:
        """Position of each row's largest value, the first of equals; shape (n,)."""
        return x.argmax(axis=1)

    def columns(self, parts: Sequence[Any]) -> Any:
        """Columns of shape (n,) side by side, in the first one's type."""
        result = self._module.empty((len(parts[0]), len(parts)), parts[0].dtype)
        for at, part in enumerate(parts):
            result[:, at] = part
        return result


HOST = Arrays(np)
"""Numpy's operations."""
