"""Checked values of saved stages: parameters, and cells of the only row of their data."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import floats_of
from hbtvm.frontends.spark.parquet import vector
from hbtvm.frontends.transformers.where import Where
from hbtvm.words.printable import shown

_SPECIAL = {"NaN": float("nan"), "Inf": float("inf"), "-Inf": float("-inf")}
"""Numbers that Spark's JSON writes as strings."""


_OF_FEATURES = ("pc", "linear")
"""Cells with a row or a number for each feature; other matrices have columns for features."""


def cell(record: Record, name: str, where: Where) -> Any:
    """Return a cell of the only row of a stage's data."""
    rows = record.sequence("data")
    if len(rows) != 1 or not isinstance(rows[0], dict) or name not in rows[0]:
        raise where.damaged(f"its data have no {name!r}.")
    return rows[0][name]


def floats(record: Record, name: str, where: Where, *shape: int | None) -> np.ndarray:
    """Return a vector or a matrix of finite numbers: float64, of a known shape (None for any extent)."""
    return floats_of(cell(record, name, where), name, where, *shape)


def number(record: Record, name: str, where: Where) -> float:
    """Return a finite number of a stage's data."""
    return float(floats(record, name, where))


def parameter(value: Any, name: str, where: Where) -> float:
    """Return a number among parameters, which may be infinite or NaN."""
    value = _SPECIAL.get(value, value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise where.damaged(f"its {name} is {shown(value, 40)!r}, which is not a number.")
    return float(value)


def of_column(record: Record, name: str, where: Where, default: Any = None) -> Any:
    """Return a parameter of the column that is read: an entry of ``nameArray`` or ``names``, or ``name``."""
    for several in (f"{name}Array", f"{name}s"):
        if record.get("inputCols", None) is not None and record.get(several, None) is not None:
            return record.sequence(several)[record.whole("at")]
    return record.get(name, default)


def handling(record: Record, where: Where) -> str:
    """Return ``handleInvalid``: ``"error"`` or ``"keep"``; raises `UnsupportedModel` for ``"skip"``."""
    value = record.get("handleInvalid", "error")
    if value == "skip":
        raise where.unsupported(
            'drops rows (handleInvalid="skip"), which is not supported; set it to "error" or "keep".'
        )
    if value not in ("error", "keep"):
        raise where.damaged(f"its handleInvalid is {shown(value, 40)!r}.")
    return str(value)


def width_of(record: Record) -> int | None:
    """Return how many features a stage reads, as far as its data say; None if they don't."""
    if "numFeatures" in record:
        return record.whole("numFeatures", 1)
    if "models" in record:
        return width_of(record.records("models")[0])
    if "layers" in record:
        return int(record.sequence("layers")[0])
    if "scalingVec" in record:
        return len(vector(record.get("scalingVec")))
    if "size" in record:
        return record.whole("size", 1)
    rows = record.get("data", None)
    row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    if "numFeatures" in row:
        return int(row["numFeatures"])
    for name, values in row.items():
        if name in _OF_FEATURES and isinstance(values, np.ndarray):
            return len(values)
        if name == "mus" and isinstance(values, list):
            return len(values[0])
    if "boundaries" in row:  # of a single column, which may be any of a vector
        return None
    arrays = [value for value in row.values() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    matrices = [array for array in arrays if array.ndim == 2]
    return int((matrices or arrays)[0].shape[-1]) if arrays else None
