"""Matrices of numbers, dense or sparse, as scikit-learn's estimators hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import Record
from hbtvm.words.printable import shown

_MOST_VALUES = 1 << 25  # bound of a sparse matrix's values, including zeros, which take no bytes of a file


def matrix(record: Record, name: str) -> np.ndarray:
    """Return an attribute, an array or a CSR matrix of scipy, as a dense array of two dimensions.

    Raises `ModelError` if it is something else.
    """
    value = record.get(name)
    if not isinstance(value, Record):
        return record.array(name, "biuf", 2)
    if not value.is_a("scipy", "csr_matrix", "csr_array"):
        raise ModelError(f"the {record.kind} is damaged: its {name} is a {shown(value.kind, 60)}.")
    rows, columns = _shape(record, name, value.get("_shape", None) or value.get("shape"))
    data = value.array("data", "biuf", 1)
    indices, indptr = value.array("indices", "iu", 1), value.array("indptr", "iu", 1)
    counts = np.diff(indptr)
    whole = len(indptr) == rows + 1 and np.all(counts >= 0) and indptr[0] == 0 and indptr[-1] == len(data)
    if not whole or len(indices) != len(data) or np.any((indices < 0) | (indices >= columns)):
        raise ModelError(f"the {record.kind} is damaged: its sparse {name} has wrong indices.")
    dense = np.zeros((rows, columns))
    np.add.at(dense, (np.repeat(np.arange(rows), counts), indices), data)
    return dense


def type_of(record: Record, name: str) -> np.dtype:
    """Return the stored type of the numbers of `matrix`."""
    value = record.get(name)
    values = value.array("data", "biuf", 1) if isinstance(value, Record) else record.array(name, "biuf", 2)
    return values.dtype


def _shape(record: Record, name: str, shape: Any) -> tuple[int, int]:
    """Return the shape of a sparse matrix, bounded, as a few bytes of a file may claim any shape."""
    sizes = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else []
    valid = len(sizes) == 2 and all(isinstance(size, (int, np.integer)) and size >= 0 for size in sizes)
    if not valid or int(sizes[0]) * int(sizes[1]) > _MOST_VALUES:
        raise ModelError(f"the {record.kind} is damaged: its {name} has the shape {shown(shape, 60)}.")
    return int(sizes[0]), int(sizes[1])
