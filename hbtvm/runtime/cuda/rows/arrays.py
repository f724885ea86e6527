"""Arrays on a GPU: the interface to their libraries, and conversion of rows for kernels."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.outputs.arrays import Arrays
from hbtvm.runtime.rows.inputs import Inputs


class ArrayLibrary(ABC):
    """Interface to a library of arrays on a GPU."""

    # Its operations, queued in the caller's stream; None for a library whose operations are unknown
    arrays: Arrays | None = None

    def holds(self, X: Any) -> bool:
        """Return whether an array of this library is on a GPU."""
        return True

    def read(self, X: Any) -> Any:
        """Return a caller's object as an array of this library."""
        return X

    def place(self, X: Any) -> contextlib.AbstractContextManager[Any]:
        """Return a context within which an array's device is current."""
        return contextlib.nullcontext()

    @abstractmethod
    def device(self, X: Any) -> int:
        """Return the number of the device that an array is on."""

    @abstractmethod
    def stream(self, X: Any) -> int | None:
        """Return the stream that the caller uses on an array's device; None for the default stream."""

    @abstractmethod
    def dtype(self, X: Any) -> np.dtype:
        """Return the dtype of an array. Raises `ValueError` if numpy has no such type."""

    @abstractmethod
    def cast(self, X: Any, dtype: np.dtype) -> Any:
        """Return the array contiguous and in a dtype; the array itself if it is both."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype, like: Any) -> Any:
        """Return a new array on the device of `like`."""

    @abstractmethod
    def address(self, X: Any) -> int:
        """Return the address of a contiguous array."""

    @abstractmethod
    def mark_missing(self, X: Any, value: float) -> Any:
        """Return a copy with NaN for a value."""

    @abstractmethod
    def has(self, X: Any, kind: str) -> bool:
        """Return whether an array has ``"NaN"`` or ``"infinity"``; waits for the device."""

    @abstractmethod
    def to_host(self, X: Any) -> np.ndarray:
        """Return a completed copy in host memory."""

    @abstractmethod
    def to_device(self, array: np.ndarray, like: Any) -> Any:
        """Return a copy on the device of `like`."""

    def adopt(self, tensor: Any) -> Any:
        """Return a `tvm_ffi` tensor as an array of the library, in the same memory."""
        return tensor


def prepare(library: ArrayLibrary, X: Any, inputs: Inputs) -> Any:
    """Return rows on a GPU in a kernel's type, as `Inputs.prepare` does for rows on the host.

    Waits for the device if the model's library refuses missing or infinite values.

    Raises `InputError` if the rows don't fit the model.
    """
    spec = inputs.spec
    shape, features = X.shape, spec.n_features
    if len(shape) != 2 or shape[1] != features:
        raise InputError(
            f"expected rows of {features} columns, shape (n, {features}), got shape {tuple(shape)}."
        )
    if not shape[0]:
        raise InputError("expected at least one row, got none.")
    try:
        dtype = inputs.kernel_dtype(library.dtype(X))
    except ValueError as error:
        raise InputError(f"expected numbers, got {error}.") from None
    rows = library.cast(X, dtype)
    if spec.missing_value is not None:
        rows = library.mark_missing(rows, float(np.float32(spec.missing_value)))
    for kind, allowed in (("NaN", spec.allow_nan), ("infinity", spec.allow_inf)):
        if not allowed and library.has(rows, kind):
            raise InputError(
                f"the rows have {kind}, but the model was trained without; expected finite numbers."
            )
    return rows
