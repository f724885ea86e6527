"""Columns of several tensors as one, and functions of the values that positions stand for."""

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
    """That a tensor is several tensors side by side, one for each target: their labels or probabilities."""

    parts: tuple[Rows, ...]


def joined(parts: Sequence[Rows], shape: Any, dtype: str) -> Rows:
    """Columns of several tensors side by side, as a tensor of a shape."""
    parts = [one.numbers() for one in parts if one.width]
    tables = [one.content for one in parts if isinstance(one.content, Table)]
    if len(tables) == len(parts):
        return Rows(shape, dtype, Table(tuple(column for one in tables for column in one.columns)))
    return Rows(shape, dtype, concat([one.node() for one in parts]))


def mapped(x: Rows, function: Callable[[np.ndarray], Any], dtype: str) -> Rows:
    """A function of a tensor that has levels: the same positions in other values."""
    assert x.levels is not None
    levels = np.asarray(function(x.levels))
    kind = object if dtype == "str" else dtype
    return Rows(x.shape, dtype, x.content, levels.astype(kind))
