"""`Epilogue`: `struct epilogue` of `hbtvm/native/epilogue/epilogue.h`, and its result arrays."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from hbtvm.runtime.native.functions import NUMBERS

MOST_COUPLED = 512
"""Maximal number of classes whose probabilities follow from those of pairs."""


class Type(IntEnum):
    """Types of results."""

    F32 = 0
    F64 = 1
    I64 = 2
    BYTES = 3
    I32 = 4


class Rule(IntEnum):
    """The reduction of a row's values."""

    VALUES = 0
    WITH_COMPLEMENT = 1
    LARGEST = 2
    COUPLED = 3


_STEPS = (
    *("add", "subtract", "multiply", "divide", "minimum", "maximum"),
    *("greater", "greater_equal", "less", "power"),
    *("exp", "negative", "sign", "square", "reciprocal", "sigmoid", "signed_square", "likelier"),
    *("softmax", "shares"),
)
STEPS = {
    **{name: len(_STEPS) + number for name, number in NUMBERS.items()},
    **{name: number for number, name in enumerate(_STEPS)},
}
"""Numbers of steps, by the functions of `hbtvm.operators.pointwise` and the formulas that they compute."""

TYPES = {"float32": Type.F32, "float64": Type.F64, "int64": Type.I64, "int32": Type.I32}
"""Numeric result types, by numpy's names."""


def _none(dtype: type) -> np.ndarray:
    return np.empty(0, dtype)


@dataclass(frozen=True, eq=False)
class Epilogue:
    """The computation of results from a row's raw scores.

    Attributes
    ----------
    dtype
        Type of the results; for labels in a table, the labels' type.
    columns
        Results per row.
    flat
        Whether the results of n rows have shape (n,), rather than (n, columns).
    cuts
        For probabilities of several targets: the column range of each. Else empty.
    lookups
        For labels that are Python objects: each target's labels, which results index. Else empty.
    type, row_bytes, plain, first, last, single, rule, targets, item
        The fields of these names of `struct epilogue`.
    step
        Numbers of steps, int64, shape (S,).
    constants
        float64, shape (S, last - first); zeros for steps without constants.
    ends
        int64, shape (targets,), or empty.
    labels
        int64, shape (targets + 1,); empty if results are arbitrary numbers (null in C).
    table
        The labels' bytes, uint8; empty if results are numbers (null in C).
    """

    dtype: np.dtype[Any]
    columns: int
    flat: bool
    type: Type
    first: int
    last: int
    cuts: tuple[tuple[int, int], ...] = ()
    lookups: tuple[np.ndarray, ...] = ()
    plain: bool = False
    single: bool = False
    step: np.ndarray = field(default_factory=lambda: _none(np.int64))
    constants: np.ndarray = field(default_factory=lambda: _none(np.float64))
    rule: Rule = Rule.VALUES
    targets: int = 1
    ends: np.ndarray = field(default_factory=lambda: _none(np.int64))
    labels: np.ndarray = field(default_factory=lambda: _none(np.int64))
    table: np.ndarray = field(default_factory=lambda: _none(np.uint8))

    @property
    def item(self) -> int:
        """Bytes of a result."""
        return self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of a row's results."""
        return self.columns * self.item

    def results(self, n: int) -> np.ndarray:
        """Return an array for the results of n rows."""
        return np.empty(n if self.flat else (n, self.columns), self.dtype)

    def output(self, results: np.ndarray) -> Any:
        """Return the output of the library's method; mostly the results themselves.

        Returns
        -------
        An array, or a list of arrays, one for each target.
        """
        if self.cuts:
            return [results[:, first:last] for first, last in self.cuts]
        if not self.lookups:
            return results
        if self.flat:
            return self.lookups[0].take(results)
        labels = np.empty(results.shape, self.lookups[0].dtype)
        for i, table in enumerate(self.lookups):
            labels[:, i] = table.take(results[:, i])
        return labels


class EpilogueFields(ctypes.Structure):
    """`struct epilogue`, which keeps alive the arrays that it points to."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("type", "row_bytes", "plain", "first", "last", "columns")),
        ("single", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("step", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("rule", ctypes.c_int64),
        ("targets", ctypes.c_int64),
        ("ends", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("item", ctypes.c_int64),
        ("table", ctypes.c_void_p),
    ]


_ARRAYS = {"step": np.int64, "constants": np.float64, "ends": np.int64, "labels": np.int64, "table": np.uint8}
_NUMBERS = (*("type", "row_bytes", "plain", "first", "last", "columns", "single", "rule", "targets", "item"),)


def fields_of(epilogue: Epilogue) -> EpilogueFields:
    """Return an epilogue's C structure, which keeps alive the arrays that it points to."""
    fields = EpilogueFields()
    for name in _NUMBERS:
        setattr(fields, name, getattr(epilogue, name))
    kept = {name: np.ascontiguousarray(getattr(epilogue, name), dtype) for name, dtype in _ARRAYS.items()}
    for name, array in kept.items():
        setattr(fields, name, array.ctypes.data if array.size else None)
    fields.steps = len(epilogue.step)
    # A table without labels is still a table: `labels` decides.
    fields.kept = kept
    return fields
