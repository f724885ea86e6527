"""What front ends of predictors share: their type, and what they ask of those of other estimators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.table import Table

Build = Callable[[Record, Table, Where], Predictor]
"""Reads any estimator that predicts (a pipeline, a forest, ...), for estimators that hold others.

From its record, the table that it reads, and its place.
"""

Reader = Callable[[Record, Table, Where, Build], Predictor]
"""From an estimator, the table that it reads, its place, and what reads the estimators within it."""


def floats(record: Record, name: str, where: Where, *shape: int | None) -> np.ndarray:
    """An attribute of finite numbers as float64, of a known shape (None for any extent).

    Raises
    ------
    ModelError
        If it is something else.
    """
    values = record.array(name, "biuf", len(shape) or None).astype(np.float64)
    sizes = zip(values.shape, shape, strict=False)
    if any(wanted is not None and size != wanted for size, wanted in sizes):
        raise where.damaged(f"its {name} has the shape {values.shape}.")
    if not np.isfinite(values).all():
        raise where.damaged(f"a number of its {name} is not finite.")
    return values
