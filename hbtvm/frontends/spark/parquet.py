"""The Parquet files of Spark's saved models: numbers, vectors, matrices and tables of tree nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, missing_package
from hbtvm.frontends.build import MOST_FEATURES
from hbtvm.frontends.spark.footer import claimed
from hbtvm.words.printable import shown

_ANY, _EACH = 1 << 24, 16
"""Values of a file that are read whatever its size, and further values for each of its bytes."""

_MOST_ENTRIES = 1 << 26  # bound of the numbers of a matrix

_LISTS = ("impurityStats", "leftCategoriesOrThreshold")


def cells(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a folder, by name of the column.

    Vectors and lists of numbers are arrays of one dimension, matrices arrays of two; other values are plain,
    also in lists.
    Raises `ModelError` if a file is damaged.
    """
    table = _table(folder)
    names = table.column_names
    try:
        return [{name: _value(table.column(name)[i]) for name in names} for i in range(table.num_rows)]
    except (TypeError, KeyError, ValueError, IndexError, OverflowError) as error:
        raise _damaged(folder, error) from error


def trees(folder: Path, wanted: Sequence[str]) -> list[dict[str, np.ndarray]]:
    """Return the nodes of each tree in the order of their ids.

    `wanted`: columns of the nodes; those of a split have the prefix ``split.``.
    Returns an array for each column, shape (nodes,) or, for lists, a row of numbers for each node: the lists
    are padded by NaN. Raises `ModelError` if a file is damaged.
    """
    import pyarrow as pa

    try:
        several = "treeID" in _table(folder, ()).schema_names
        read = [f"nodeData.{name}" for name in wanted] if several else list(wanted)
        table = _table(folder, [*read, *(["treeID"] if several else [])])
        columns = {name: _column(table, path.split(".")) for name, path in zip(wanted, read, strict=True)}
        number = _column(table, ["treeID"]) if several else np.zeros(table.num_rows, np.int64)
        order = np.lexsort((columns["id"], number))
        ends = np.flatnonzero(np.diff(number[order])) + 1
        return [{name: values[rows] for name, values in columns.items()} for rows in np.split(order, ends)]
    except (TypeError, KeyError, ValueError, IndexError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, ModelError):
            raise
        raise _damaged(folder, error) from error


class _Names:
    """The names of a folder's columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.schema_names = tuple(names)


def _table(folder: Path, columns: Sequence[str] | None = None) -> Any:
    """Return a folder's rows as a table of Arrow; for no columns, their names alone.

    Raises `ModelError` if a file can't be read, or holds more values than its size allows.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_package("reading a saved model of Spark needs", "pyarrow", "hbtvm[parquet]") from None
    try:
        paths = sorted(folder.glob("*.parquet"))
        if not paths:
            raise ModelError(f"the model is damaged: there are no Parquet files in {folder}.")
        parts = []
        for path in paths:
            _require_few(path)
            with pq.ParquetFile(path) as file:
                if columns is not None and not columns:
                    return _Names(file.schema_arrow.names)
                parts.append(file.read(columns=columns, use_threads=False))
        return pa.concat_tables(parts).combine_chunks()
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        if isinstance(error, ModelError):
            raise
        raise _damaged(folder, error) from error


def _require_few(path: Path) -> None:
    values = claimed(path)
    most = _ANY + _EACH * path.stat().st_size
    if values > most:
        raise ModelError(f"{path}: the file claims {values:,} values, more than its size allows ({most:,}).")


def _damaged(folder: Path, error: Exception) -> ModelError:
    reason = shown(next(iter(str(error).splitlines()), "") or type(error).__name__, 160)
    return ModelError(f"the model is damaged: the Parquet files in {folder} can't be read ({reason}).")


def _column(table: Any, path: Sequence[str]) -> np.ndarray:
    """Return a column of numbers, or of a struct in it, without missing values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = table.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, name)
    values = values.combine_chunks()
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    if values.null_count:
        raise ValueError(f"the column {path[-1]} has missing values")
    if path[-1] not in _LISTS:
        return _numbers(values)
    lengths = _numbers(pc.list_value_length(values))
    width = int(lengths.max(initial=0))
    if len(lengths) * width > _ANY + _EACH * int(lengths.sum()):
        raise ValueError(f"a list of the column {path[-1]} is too long")
    result = np.full((len(lengths), width), np.nan)
    result[np.arange(width) < lengths[:, None]] = _numbers(values.flatten())
    return result


def _numbers(values: Any) -> np.ndarray:
    result: np.ndarray = values.to_numpy(zero_copy_only=False)
    if values.null_count or result.dtype.kind not in "iuf":
        raise ValueError("expected numbers")
    return result


def _value(scalar: Any) -> Any:
    """Return a cell's value, see `cells`."""
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        fields = {name: _value(scalar[name]) for name in scalar}
        return _matrix(fields) if "numRows" in fields else vector(fields)
    if isinstance(scalar, pa.MapScalar):
        return scalar.as_py()
    if isinstance(scalar, pa.ListScalar):
        if pa.types.is_primitive(scalar.type.value_type):
            return _numbers(scalar.values)
        if pa.types.is_struct(scalar.type.value_type):
            return [_value(part) for part in scalar.values]
    return scalar.as_py()


def vector(fields: dict[str, Any]) -> np.ndarray:
    """Return a vector of Parquet's or JSON's fields: float64, shape (size,)."""
    if fields["type"] == 1:
        return np.asarray(fields["values"], np.float64)
    size = fields["size"]
    if not 0 <= size <= MOST_FEATURES:
        raise ValueError(f"a vector has {size} numbers")
    result = np.zeros(size)
    result[_within(fields["indices"], size)] = fields["values"]
    return result


def _matrix(fields: dict[str, Any]) -> np.ndarray:
    """Return a matrix: float64, shape (rows, columns)."""
    rows, columns = fields["numRows"], fields["numCols"]
    if rows < 0 or columns < 0 or rows * columns > _MOST_ENTRIES:
        raise ValueError(f"a matrix has the shape ({rows}, {columns})")
    values = np.asarray(fields["values"], np.float64)
    # Columns come first unless the matrix is transposed.
    shape = (rows, columns) if fields["isTransposed"] else (columns, rows)
    if fields["type"] == 1:
        result = values.reshape(shape)
    else:
        result = np.zeros(shape)
        major = np.repeat(np.arange(shape[0]), np.diff(fields["colPtrs"]))
        result[major, _within(fields["rowIndices"], shape[1])] = values
    return result if fields["isTransposed"] else np.ascontiguousarray(result.T)


def _within(indices: np.ndarray, size: int) -> np.ndarray:
    if len(indices) and not 0 <= np.min(indices) <= np.max(indices) < size:
        raise ValueError(f"an index is outside of {size} numbers")
    return indices
