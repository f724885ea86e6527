"""Refuse rows of types in which the library's results differ from those in float64.

See `hbtvm.graph.refused_rows`. Only models that refuse some types check their rows' types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.refused_rows import common
from hbtvm.runtime.rows.beside import Beside

TypeOf = Callable[[int], str | None]
"""From a column of the input to numpy's name of its type; None if unknown."""


class RowTypes:
    """Checks the types of rows.

    `spec`: what the model accepts.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._spec = spec

    def check(self, X: Any) -> None:
        """Refuse rows in any container with a column of a refused type.

        Raises `InputError`, which names the column, its type and the step that reads it.
        """
        self._check(self._types_of(X))

    def check_dtype(self, dtype: np.dtype) -> None:
        """Run `check` for an array."""
        self._check(lambda _: dtype.name)

    def _check(self, type_of: TypeOf) -> None:
        for rule in self._spec.types_refused:
            types = {column: type_of(column) for column in rule.columns}
            shared = common(types.values()) if rule.together else None
            for column, type_name in types.items():
                name = shared if rule.together else type_name
                if name in rule.types:
                    names = self._spec.feature_names
                    place = f"column {column}" if names is None else f"column {names[column]!r}"
                    raise InputError(
                        f"{place} is {name}, for which {rule.step} computes other numbers than for float64; "
                        "convert it to float64 (astype('float64'))."
                    )

    def _types_of(self, X: Any) -> TypeOf:
        if isinstance(X, Beside):
            first, own = self._types_of(X.rows), self._spec.n_features - X.more.shape[1]
            return lambda column: first(column) if column < own else str(X.more.dtype.name)
        if isinstance(getattr(X, "dtype", None), np.dtype):  # an array, or a sparse matrix
            return lambda _: str(X.dtype.name)
        if isinstance(X, Mapping):
            X = [X]
        if isinstance(X, list | tuple):
            if X and all(isinstance(row, Mapping) for row in X):
                names = self._spec.feature_names or ()
                return lambda column: _of_values([row.get(names[column]) for row in X])
            return _of_lists(X)
        columns = _columns_of(X)
        if columns is None:
            return lambda _: None
        if self._spec.by_name and self._spec.feature_names is not None:
            named, names = dict(columns), self._spec.feature_names
            return lambda column: named.get(names[column])
        return lambda column: columns[column][1] if column < len(columns) else None


def _of_values(values: list[Any]) -> str | None:
    """Return the type that a data frame gives a column of Python values."""
    if all(isinstance(value, bool | np.bool_) for value in values):
        return "bool"
    whole = all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values)
    return "int64" if whole else None


def _of_lists(rows: Any) -> TypeOf:
    try:
        name = np.asarray(rows).dtype.name
    except Exception:  # the reader refuses these rows
        return lambda _: None
    return lambda _: str(name)


def _columns_of(X: Any) -> list[tuple[str, str | None]] | None:
    """Return names and types of a table's columns."""
    module = type(X).__module__.partition(".")[0]
    if module not in ("pandas", "polars", "pyarrow"):
        return None
    if module == "pyarrow":
        return [(field.name, _name(getattr(field.type, "value_type", field.type))) for field in X.schema]
    if module == "polars":
        return [(name, _name(dtype)) for name, dtype in X.schema.items()]
    if not isinstance(X, sys.modules["pandas"].DataFrame):
        return None
    return [(str(name), _of_pandas(dtype)) for name, dtype in zip(X.columns, X.dtypes, strict=True)]


def _of_pandas(dtype: Any) -> str | None:
    if hasattr(dtype, "categories"):
        dtype = dtype.categories.dtype
    # Nullable and Arrow types have a numpy type; sparse types have their values' type.
    dtype = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    return str(dtype.name) if isinstance(dtype, np.dtype) else _name(dtype)


def _name(dtype: Any) -> str:
    name = str(dtype).lower()
    return "bool" if name == "boolean" else name
