"""Join columns of several tensors, and map the levels of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.values import Rows
from hbtvm.graph.columns.table import Table
from hbtvm.operators.shapes import concat


@dataclass(frozen=True, eq=False)
class Targets:
    """The origin of a tensor that joins a tensor for each target: labels or probabilities."""

    parts: tuple[Rows, ...]


def joined(parts: Sequence[Rows], shape: Any, dtype: str) -> Rows:
    """Return columns of several tensors side by side, as a tensor of a shape."""
    parts = [part.numbers() for part in parts if part.width]
    tables = [part.content for part in parts if isinstance(part.content, Table)]
    if len(tables) == len(parts):
        return Rows(shape, dtype, Table(tuple(column for table in tables for column in table.columns)))
    return Rows(shape, dtype, concat([part.node() for part in parts]))


def mapped(x: Rows, function: Callable[[np.ndarray], Any], dtype: str) -> Rows:
    """Apply a function to the levels of a tensor."""
    assert x.levels is not None
    levels = np.asarray(function(x.levels))
    kind = object if dtype == "str" else dtype
    return Rows(x.shape, dtype, x.content, levels.astype(kind))
