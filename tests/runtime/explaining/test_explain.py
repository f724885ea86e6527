"""Explanations of compiled models: against all coalitions, shap's explainers, and in every container."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import factorial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from hbtvm.errors import InputError
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.table import Raw
from hbtvm.runtime.model import Model
from tests.models import data
from tests.runtime import test_pipeline_model as pipeline
from tests.runtime_models import compiled, kernel, package, trained

pytestmark = pytest.mark.usefixtures("unchecked_kernels")


def by_frames(score: Any, X: pd.DataFrame, background: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Return Shapley values from all coalitions, mixed by pandas; shape (n, columns, O)."""
    k, values = len(names), []
    for i in range(len(X)):
        v = {}
        for size in range(k + 1):
            for members in combinations(names, size):
                rows = background.copy()
                for name in members:
                    rows[name] = X[name].iloc[i]
                result = np.asarray(score(rows), np.float64)
                v[frozenset(members)] = result.reshape(len(rows), -1).mean(axis=0)
        values.append(
            [
                sum(
                    factorial(len(s)) * factorial(k - len(s) - 1) / factorial(k) * (v[s | {name}] - v[s])
                    for s in v
                    if name not in s
                )
                for name in names
            ]
        )
    return np.array(values)


SCALES = {
    "lgb_two": "raw",
    "xgb_three": "raw",
    "sk_hist_two_nan": "decision",
    "sk_forest_three_nan": "proba",
    "sk_hist_real_cat": None,
    "sk_isolation_nan": "decision",
}
"""What is explained by default, by model."""


@pytest.mark.parametrize(("name", "output"), SCALES.items())
def test_few_columns_are_exact(name: str, output: Any) -> None:
    model = Model(compiled(name, ("float32", "float64")))
    X = np.array(data(missing=name.endswith("_nan"))[0])
    rows, background = X[:4], X[40:60]
    explanation = model.explain(rows, background)
    assert explanation.errors is None
    columns = [f"x{i}" for i in range(4)]
    truth = by_frames(
        lambda frame: model.predict(frame.to_numpy(), output),
        pd.DataFrame(rows, columns=columns),
        pd.DataFrame(background, columns=columns),
        columns,
    )
    values = explanation.values if explanation.values.ndim == 3 else explanation.values[:, :, None]
    np.testing.assert_allclose(values, truth, rtol=0, atol=1e-9)
    score = np.asarray(model.predict(rows, output), np.float64).reshape(explanation.base_values.shape)
    # Kernels for few and for many rows add float32 leaves in different orders.
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, score, rtol=0, atol=1e-6)


CALLS: dict[str, Any] = {"lgb_two": "proba", "sk_forest_two": "proba", "xgb_real_base": None}


@pytest.mark.parametrize(("name", "output"), CALLS.items())
def test_shap_agrees(name: str, output: Any) -> None:
    """shap's own explainers call the library's model."""
    trained_model, _ = trained(name)
    model = Model(compiled(name, ("float32", "float64")))
    X = np.array(data()[0])
    rows, background = X[:3], X[50:75]
    call = trained_model.predict_proba if output == "proba" else trained_model.predict
    shap = pytest.importorskip("shap")
    oracle = shap.explainers.Exact(call, shap.maskers.Independent(background, 100))(rows)
    explanation = model.explain(rows, background, output=output)
    np.testing.assert_allclose(explanation.values, oracle.values, rtol=0, atol=2e-6)
    np.testing.assert_allclose(explanation.base_values, oracle.base_values, rtol=0, atol=2e-6)
    if output == "proba":
        assert explanation.output_names == tuple(map(str, trained_model.classes_))


def test_samples() -> None:
    model = Model(compiled("lgb_two"))
    X = np.array(data()[0], np.float32)
    background = X[20:]
    exact = model.explain(X[:6], background, samples=10**6)
    drawn = model.explain(X[:6], background, samples=60, seed=3)
    assert exact.errors is None and drawn.errors is not None
    assert np.abs(drawn.values - exact.values).max() < 5 * drawn.errors.max()
    score = model.predict(X[:6], "raw").ravel()
    np.testing.assert_allclose(drawn.base_values + drawn.values.sum(axis=1), score, rtol=0, atol=1e-9)
    again = model.explain(X[2:4], background, samples=60, seed=3)
    np.testing.assert_allclose(again.values, drawn.values[2:4], rtol=0, atol=1e-12)
    assert not np.allclose(model.explain(X[:6], background, samples=60, seed=4).values, drawn.values)


def _simple() -> Model:
    """Return a pipeline all of whose feeds are numbers or codes."""
    graph = pipeline.graph()
    graph = replace(graph, feeds=(*graph.feeds[:3], Feed(Raw(1), (), False, False, "column 'pay'")))
    return Model(package(graph, *(kernel(graph, 64, dtype=dtype) for dtype in ("float32", "float64"))))


CONTAINERS: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "categories": lambda frame: frame.astype({"job": "category"}),
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dicts": lambda frame: [
        {name: None if value != value else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ],
    "objects": lambda frame: frame[list(pipeline.NAMES)].astype(object).to_numpy(),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("hosts", [False, True])
def test_pipelines_explain_the_callers_columns(container: str, hosts: bool) -> None:
    model = Model(pipeline.packed()) if hosts else _simple()
    frame = pipeline.frame(24)
    X, background = frame.iloc[:3], frame.iloc[10:]
    convert = CONTAINERS[container]
    explanation = model.explain(convert(X), convert(background))
    assert explanation.feature_names == pipeline.NAMES
    truth = by_frames(lambda rows: model.predict(rows, "raw"), X, background, ["age", "pay", "job"])
    np.testing.assert_allclose(explanation.values[:, :3], truth[:, :, 0], rtol=0, atol=1e-9)
    assert not explanation.values[:, 3].any()  # the model does not read it
    assert explanation.data.shape == (3, 4)
    assert list(explanation.data[:, 0]) == pytest.approx(X["age"].tolist(), nan_ok=True)
    assert explanation.data[0, 2] == X["job"].iloc[0]


def test_sparse_rows_have_their_librarys_absent_values() -> None:
    X = np.array(data()[0])
    X[np.abs(X) < 0.5] = 0
    background = X[100:120]
    for name in ("xgb_real_base", "lgb_two"):
        model = Model(compiled(name, ("float32", "float64")))
        parts, absent = (X[:5], background), np.nan if name.startswith("xgb") else 0.0
        dense = [np.where(part == 0, absent, part) for part in parts]
        sparse = [scipy.sparse.csr_matrix(part) for part in parts]
        explanation = model.explain(*sparse)
        np.testing.assert_allclose(explanation.values, model.explain(*dense).values, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(explanation.data, X[:5])


def test_what_cannot_be_explained() -> None:
    model = Model(compiled("lgb_two"))
    X = np.array(data()[0], np.float32)
    with pytest.raises(InputError, match=r"no reasons; compile with explain=True .* or pass background="):
        model.explain(X)
    with pytest.raises(InputError, match="samples is for estimates"):
        model.explain(X, samples=10)
    with pytest.raises(InputError, match="samples is 2; expected a whole number of at least 3"):
        model.explain(X, X, samples=2)
    with pytest.raises(InputError, match="output is 'label'; expected None, 'raw'"):
        model.explain(X, X, output="label")
    with pytest.raises(InputError, match="predicts labels; explain its scores"):
        model.explain(X, X, output="prediction")
    with pytest.raises(InputError, match=r"^background: expected rows of 4 columns, got 3\."):
        model.explain(X, X[:, :3])
    with pytest.raises(InputError, match="expected rows of 4 columns, got 3"):
        model.explain(X[:, :3], X)
    with pytest.raises(InputError, match="has no class probabilities"):
        Model(compiled("xgb_real_base")).explain(X, X, output="proba")
    frame = pipeline.frame(6)
    with pytest.raises(InputError, match="background: column 'job' is missing"):
        Model(pipeline.packed()).explain(frame, frame.drop(columns="job"))
    with pytest.raises(InputError, match="the rows are of pandas and background of polars"):
        Model(pipeline.packed()).explain(frame, pl.from_pandas(frame))


def test_a_packages_own_kernel_explains() -> None:
    model = Model(compiled("xgb_three"))
    width = model.n_features_in_
    scores = np.arange(2.0 * 3 * (width + 1)).reshape(2, 3, width + 1)
    package = SimpleNamespace(output=SimpleNamespace(shape=(3, width + 1)))
    view = SimpleNamespace(package=package, predict=lambda X: scores.reshape(2, -1), _input=model._input)
    model.views = {"reasons": view}
    explanation = model.explain(np.zeros((2, width)))
    assert explanation.values.shape == (2, width, 3) and len(explanation.output_names) == 3
    assert explanation[1, 1, 2].values == scores[1, 2, 1]
    np.testing.assert_array_equal(explanation.base_values, scores[:, :, -1])
    with pytest.raises(InputError, match="reasons of raw scores; for 'proba' pass background="):
        model.explain(np.zeros((2, width)), output="proba")
