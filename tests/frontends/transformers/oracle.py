"""What a fitted transformer makes of rows: read from its pickle, and by itself."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from hbtvm.frontends import pickles
from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.operations import read
from hbtvm.frontends.pickles.source import Source
from hbtvm.frontends.registry import ESTIMATORS
from hbtvm.frontends.transformers import Where, apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table

PLACE = Where(estimators=ESTIMATORS)
"""The outermost place."""


def record_of(estimator: Any) -> pickles.Record:
    """An estimator as its pickle has it."""
    record = read(Source(iter((pickle.dumps(estimator),))), Budget(1 << 30))
    assert isinstance(record, pickles.Record)
    return record


def table_of(estimator: Any, width: int, names: Sequence[str] | None = None) -> Table:
    """What a fitted transformer makes of so many columns."""
    named = tuple(f"x{i}" for i in range(width)) if names is None else tuple(names)
    raw = Table(tuple(Column(Raw(i)) for i in range(width)), names=named)
    return apply(record_of(estimator), raw, replace(PLACE, names=None if names is None else named))


def raw_of(rows: Any) -> list[np.ndarray]:
    """Columns as the runtime gives them: numbers as floats, anything else as Python values."""
    if isinstance(rows, pd.DataFrame):
        columns = [rows.iloc[:, i].to_numpy() for i in range(rows.shape[1])]
    else:
        columns = [rows[:, i] for i in range(rows.shape[1])]
    return [
        c.astype(np.float64) if c.dtype.kind in "iub" else c.astype(object) if c.dtype.kind == "U" else c
        for c in columns
    ]


def check(estimator: Any, rows: Any, *, same_type: bool = True) -> Table:
    """Compare to the bit what is read of a fitted transformer with what it does; return its table."""
    names = list(rows.columns) if isinstance(rows, pd.DataFrame) else None
    expected = estimator.transform(rows)
    sparse = hasattr(expected, "toarray")
    expected = np.asarray(expected.toarray() if sparse else expected)
    table = table_of(estimator, rows.shape[1], names)
    assert len(table) == expected.shape[1]
    assert table.sparse == sparse
    raw = raw_of(rows)
    numbers = {column.dtype.name for column in raw if column.dtype.kind == "f"}
    found = evaluate(table, raw, *numbers) if len(table) else np.empty((len(rows), 0))
    if same_type and len(table) and expected.dtype.kind == "f":
        assert found.dtype == expected.dtype
    if expected.dtype.kind in "biu":
        expected = expected.astype(np.float64)
    if expected.dtype.kind == "O":
        for one, other in zip(found.ravel().tolist(), expected.ravel().tolist(), strict=True):
            assert one == other or (one != one and other != other), (one, other)
    else:
        np.testing.assert_array_equal(found, expected)
        # Zeros have signs, which array comparison ignores on purpose.
    try:
        named = tuple(estimator.get_feature_names_out())
    except (AttributeError, ValueError):
        named = None
    if table.names is not None and named is not None:
        assert table.names == named
    return table
