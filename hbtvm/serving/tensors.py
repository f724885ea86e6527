"""Tensors of requests as a model's rows."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.feeds.file_columns import known_values
from hbtvm.runtime.model import Model
from hbtvm.serving.datatypes import BYTES

INPUT = "input"
"""The tensor of all columns of a numeric model."""

_TABLE_CELLS = 1 << 12
"""Minimal number of values for which rows become a table rather than dicts, if pyarrow is installed."""


@dataclass(frozen=True)
class Tensor:
    """An input or an output.

    Attributes
    ----------
    name, datatype
        Name and datatype in requests.
    width
        Columns; None for a vector.
    labels
        Class labels that name an output's columns; empty if they have no names.
    """

    name: str
    datatype: str
    width: int | None
    labels: Sequence[str] = ()

    def metadata(self) -> dict[str, Any]:
        """Return the protocol's metadata; -1 stands for any number of rows."""
        shape = [-1] if self.width is None else [-1, self.width]
        return {"name": self.name, "datatype": self.datatype, "shape": shape}


class TensorRows:
    """Converts a request's tensors to a model's rows."""

    def __init__(self, model: Model) -> None:
        spec = model.package.input
        names = spec.feature_names
        self._known = None if names is None else frozenset(names)
        self.values = spec.rows_are_values
        if self.values:
            self.tensors: tuple[Tensor, ...] = (Tensor(INPUT, BYTES, None),)
            return
        known = known_values(spec, model.pipeline)
        texts = {at for at, values in known.items() if any(isinstance(value, str) for value in values)}
        self._wide = spec.n_features
        # A model compiled for float32 only refuses float64 values that float32 does not hold.
        number = "FP32" if model.package.row_dtypes == ("float32",) else "FP64"
        if not texts:
            self.tensors = (Tensor(INPUT, number, spec.n_features),)
        elif names is None:
            self.tensors = (Tensor(INPUT, BYTES, spec.n_features),)
        else:
            self.tensors = tuple(
                Tensor(names[at], BYTES if at in texts else number, 1) for at in sorted(known)
            )

    def flat(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return tensors whose first axis is the rows, also if a tensor has one row per value."""
        return {name: only.reshape(-1) for name, only in tensors.items()} if self.values else tensors

    def of(self, tensors: Mapping[str, np.ndarray]) -> Any:
        """Return the rows: a matrix, a dict of a single row's values, or a table."""
        if len(tensors) == 1:
            ((name, only),) = tensors.items()
            if self.values:
                return only.reshape(-1)
            if self._known is None or name not in self._known:
                if only.ndim != 2:
                    raise InputError(
                        f"input {name!r}: its shape is {list(only.shape)}, expected [rows, {self._wide}]."
                    )
                return only
        if self.values:
            raise InputError(f"there are {len(tensors)} inputs, expected one.")
        if self._known is None:
            raise InputError(
                f"there are {len(tensors)} inputs, expected one of shape [rows, {self._wide}]: this model "
                "was trained without column names."
            )
        return self._table(tensors)

    def _table(self, tensors: Mapping[str, np.ndarray]) -> Any:
        columns, rows = {}, None
        for name, column in tensors.items():
            if column.ndim == 2 and column.shape[1] != 1:
                raise InputError(
                    f"input {name!r}: its shape is {list(column.shape)}, expected [rows, 1], a column."
                )
            if rows is not None and len(column) != rows:
                raise InputError(f"input {name!r} has {len(column):,} rows, others have {rows:,}.")
            rows = len(column)
            columns[name] = column.reshape(-1)
        assert rows is not None
        if rows == 1:
            return {name: column.tolist()[0] for name, column in columns.items()}
        if rows * len(columns) >= _TABLE_CELLS and _arrow is not None:
            return _arrow.table({name: _arrow.array(column) for name, column in columns.items()})
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]


def _import_arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        return None


_arrow = _import_arrow()
