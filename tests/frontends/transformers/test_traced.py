"""Live functions that are traced to steps, against the functions themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import hbtvm
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object, pickles
from hbtvm.frontends.transformers import apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table
from tests.frontends.transformers.oracle import PLACE

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 3)) * [1.0, 10.0, 0.1]
_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.nan, np.inf, -np.inf, 0.1, np.nextafter(0.1, 1)])
ODD = RNG.choice(_SPECIAL, size=(200, 3))

TRACED: dict[str, Callable[[Any], Any]] = {
    "chain": lambda X: np.log1p(np.abs(X)) * 2 - 1,
    "left": lambda X: 3 - X,
    "reciprocal": lambda X: 2 / X,
    "powers": lambda X: X**2 + X**0.5,
    "constants": lambda X: X / np.array([1.0, 3.0, 7.0]),
    "narrow constants": lambda X: X * np.array([0.1, 0.2, 0.3], np.float32),
    "ratio": lambda X: X[:, 0:1] / X[:, 1:2],
    "added ratio": lambda X: np.column_stack([X, X[:, 0] / X[:, -1]]),
    "stacked": lambda X: np.hstack([X[:, [2, 0]], (X[:, 0] * X[:, 1]).reshape(-1, 1)]),
    "where": lambda X: np.where(X > 0, np.sqrt(X), -X),
    "between": lambda X: np.where((X >= 0) & ~(X == 1), X, 0.0),
    "missing": lambda X: np.where(np.isnan(X), 5, X),
    "clipped": lambda X: np.clip(np.maximum(X, -3), 0, 0.1),
    "marks": lambda X: (X != 1).astype(float),
    "masked": lambda X: X * (X > 0),
    "shape": lambda X: X * X.shape[1],
}

REFUSED: dict[str, Callable[[Any], Any]] = {
    "sorted": lambda X: np.sort(X),
    "of all rows": lambda X: X - X.mean(axis=0),
    "rows": lambda X: X[:10],
    "rounded comparison": lambda X: np.where(X > 0.1, X, 0),
    "comparison of results": lambda X: np.where(X * 0.1 > 1, X, 0),
    "decision": lambda X: X if X[0, 0] > 0 else -X,
    "by type": lambda X: X if isinstance(X, np.ndarray) else X * 2,
    "in place": lambda X: np.add(X, 1, out=X),
    "truths": lambda X: X > 0,
    "error": lambda X: 1 / 0,
}


def _table(function: Callable[[Any], Any]) -> Table:
    record = pickles.from_live(FunctionTransformer(function))
    return apply(record, Table(tuple(Column(Raw(i)) for i in range(3))), PLACE)


@pytest.mark.parametrize("name", TRACED)
def test_traced(name: str) -> None:
    """To the bit for either type, at special values too."""
    function = TRACED[name]
    table = _table(function)
    for rows in (X, ODD):
        for typed in (rows, rows.astype(np.float32)):
            with np.errstate(all="ignore"):
                expected, found = function(typed), evaluate(table, list(typed.T), typed.dtype.name)
            assert found.dtype == expected.dtype
            tolerance = 0.0 if typed.dtype == np.float64 else 3e-7
            np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize("name", REFUSED)
def test_not_traced(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"has the function .*<lambda>, which is not supported"):
        _table(REFUSED[name])


def test_arguments_and_bound_methods() -> None:
    def scaled(X: Any, by: float, shift: Any) -> Any:
        return X * by + shift

    shift = np.array([1.0, 2.0, 3.0])
    model = FunctionTransformer(scaled, kw_args={"by": 0.1, "shift": shift})
    table = apply(pickles.from_live(model), Table(tuple(Column(Raw(i)) for i in range(3))), PLACE)
    np.testing.assert_array_equal(evaluate(table, list(X.T), "float64"), X * 0.1 + shift)


def test_a_compiled_pipeline() -> None:
    """Traced functions of the caller's rows, of scaled ones and of columns of a frame."""
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    union = make_union(FunctionTransformer(TRACED["added ratio"]), FunctionTransformer(TRACED["clipped"]))
    chosen = ColumnTransformer(
        [("log", FunctionTransformer(lambda X: np.log1p(X * X)), ["b"]), ("s", StandardScaler(), ["a", "c"])]
    )
    model = make_pipeline(chosen, union, LinearRegression()).fit(frame, X[:, 0])
    ours = hbtvm.compile(model, batch_sizes=100, threads=1)
    np.testing.assert_allclose(ours.predict(frame), model.predict(frame), rtol=1e-6)


def test_rows_that_differ() -> None:
    """Integers that wrap, and sparse rows."""
    model = make_pipeline(FunctionTransformer(lambda X: X * X * 3), LinearRegression()).fit(X, X[:, 0])
    rules = from_object(model).input.types_refused
    assert "int8" in rules[0].types
    assert rules[0].columns == (0, 1, 2)
    assert "is compiled for dense rows only" in from_object(model).input.sparse_refused
    model = make_pipeline(FunctionTransformer(lambda X: X / 2), LinearRegression()).fit(X, X[:, 0])
    refused = {kind for rule in from_object(model).input.types_refused for kind in rule.types}
    assert "int64" not in refused
