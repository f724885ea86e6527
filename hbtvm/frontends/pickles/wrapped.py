"""Arrays that joblib writes between the operations of a pickle, behind an object that describes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import arrays
from hbtvm.frontends.pickles.objects import Draft
from hbtvm.frontends.pickles.records import Global, Record
from hbtvm.frontends.pickles.source import Source


@dataclass(frozen=True)
class StoredArray:
    """The description of an array whose bytes follow."""

    # `dtype`, `shape`, `order`: the array's; ``"F"`` for Fortran order
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str
    padded: bool  # whether the next byte is a number of bytes to skip

    @property
    def of_objects(self) -> bool:
        """Whether a nested pickle holds the array."""
        return self.dtype.hasobject

    def read(self, source: Source) -> np.ndarray:
        """Read the array's bytes from `source`."""
        if self.padded:
            source.read(source.byte())
        count = arrays.count_of(self.shape, self.dtype)
        return arrays.from_bytes(source.view(count * self.dtype.itemsize), self.dtype, self.shape, self.order)


def draft(record: Record) -> Draft | None:
    """Return the draft of an object of joblib's class; None for other objects."""
    cls = record.cls
    if not isinstance(cls, Global) or not cls.module.endswith("joblib.numpy_pickle"):
        return None
    if cls.name == "NumpyArrayWrapper":
        return Draft(record, _stored)
    if cls.name in ("NDArrayWrapper", "ZNDArrayWrapper"):
        raise ModelError(
            "the file is of a joblib older than 0.10, which kept arrays in separate files; load it "
            "with that joblib, and save it with a newer version."
        )
    return None


def _stored(state: Any) -> StoredArray:
    if not isinstance(state, dict):
        raise ModelError("expected a pickled model, but it is damaged: joblib's array has no description.")
    dtype = state.get("dtype")
    if isinstance(dtype, Draft):
        dtype = dtype.value
    if isinstance(dtype, Record) and dtype.args[:1] in (("M8",), ("m8",)):
        # Dates and times are skipped as bytes; no front end reads them.
        dtype = np.dtype("V8")
    if not isinstance(dtype, np.dtype):
        raise ModelError(
            "the file has an array of a type that hbtvm does not read (dates or records of objects)."
        )
    return StoredArray(
        dtype,
        arrays.checked_shape(state.get("shape")),
        "F" if state.get("order") == "F" else "C",
        state.get("numpy_array_alignment_bytes") is not None,
    )
