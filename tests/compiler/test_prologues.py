"""Pipelines whose kernels compute scalers: predictions are the library's, in packages and after a search."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from sklearn import ensemble, preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline

import hbtvm
from hbtvm.compiler.candidates.samples import CHECKED_ROWS, plain_sums, sample_rows
from hbtvm.compiler.candidates.tasks import anchor_of, describe, operands_of, usable
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError
from hbtvm.graph.columns.table import Raw
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import Prologue
from hbtvm.logs.store import Log
from hbtvm.run import read_model
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.strategies import STRATEGIES, Forest

pytestmark = pytest.mark.usefixtures("shared_workers", "unchecked_kernels")

FEATURES = 5
LAST: dict[str, Any] = {
    "forest": lambda: ensemble.RandomForestClassifier(6, max_depth=5, random_state=0),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=8, max_depth=4, random_state=0),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=8, max_depth=4, n_jobs=1),
}
ONE_HOT = [("a", preprocessing.OneHotEncoder(), [0]), ("b", preprocessing.StandardScaler(), [1, 2, 3, 4])]
PIPELINES: dict[str, tuple[Any, str]] = {
    "standard": (preprocessing.StandardScaler, "forest"),
    "robust": (preprocessing.RobustScaler, "boosting"),
    "min_max": (preprocessing.MinMaxScaler, "xgboost"),
    "clipped": (lambda: preprocessing.MinMaxScaler(clip=True), "forest"),
    "max_abs": (preprocessing.MaxAbsScaler, "xgboost"),
    "missing": (preprocessing.StandardScaler, "xgboost"),
    "imputed": (
        lambda: make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True), preprocessing.StandardScaler()
        ),
        "forest",
    ),
    "one_hot": (lambda: ColumnTransformer(ONE_HOT), "forest"),
    "one_hot boosted": (lambda: ColumnTransformer(ONE_HOT), "xgboost"),
}
HAVE_NAN = ("missing", "imputed")


@functools.cache
def fitted(name: str) -> tuple[Pipeline, Graph]:
    scaler, last = PIPELINES[name]
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, FEATURES)) * [1, 30, 1e-3, 5, 1e5] + [0, 100, 0, -3, 0]
    X[:, 0] = rng.integers(0, 6, len(X))
    y = X[:, 0] + X[:, 1] / 30 + np.sin(X[:, 3]) * (X[:, 2] > 0) + 0.1 * rng.normal(size=len(X))
    if name in HAVE_NAN:
        X[rng.random(X.shape) < 0.1] = np.nan
    if last == "forest":
        y = np.digitize(y, [4.0, 7.0])
    pipeline = make_pipeline(scaler(), LAST[last]()).fit(X, y)
    return pipeline, read_model(pipeline)


def rows_for(name: str, n: int = 300) -> np.ndarray:
    """float64 rows, most of whose values are raw thresholds or numbers beside them; some are huge."""
    _, graph = fitted(name)
    rng, trees = np.random.default_rng(1), graph.anchor
    assert isinstance(trees, TreeEnsemble)
    X = rng.normal(size=(n, FEATURES)) * 10
    for at, feed in enumerate(graph.feeds):
        assert isinstance(feed.source, Raw)
        nodes = (trees.feature == at) & np.isfinite(trees.threshold)
        if feed.encoder is None and nodes.any():
            near = rng.choice(trees.threshold[nodes], n)
            for _ in range(2):
                near = np.nextafter(near, near + rng.choice([-1.0, 0.0, 1.0], n))
            X[:, feed.source.index] = near
    few = rng.random(X.shape)
    X[few < 0.02], X[(few > 0.02) & (few < 0.04)] = 1e30, -1e30
    X[(few > 0.04) & (few < 0.06)] = -0.0
    if name in HAVE_NAN:
        X[few > 0.85] = np.nan
    if name.startswith("one_hot"):
        X[:, 0] = rng.integers(0, 6, n)
    return X


def agree(pipeline: Pipeline, model: Model, X: np.ndarray) -> None:
    """Numbers are the library's; equal leaves make the same sums but for float32 leaf values."""
    if hasattr(pipeline, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(X), pipeline.predict_proba(X), atol=1e-6)
        return
    expected = pipeline.predict(X)
    np.testing.assert_allclose(model.predict(X), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


CHOSEN = [(name, list(STRATEGIES)[(at + more) % 5]) for at, name in enumerate(PIPELINES) for more in (0, 2)]


@pytest.mark.parametrize(("name", "strategy"), CHOSEN)
def test_predictions_are_the_librarys(name: str, strategy: str) -> None:
    pipeline, graph = fitted(name)
    made = hbtvm.compile(graph, batch_sizes=(64,), threads=1, strategies=[strategy])
    kernels = {kernel.dtype: kernel for kernel in made.package.kernels}
    assert set(kernels) == {"float32", "float64"}
    tables = {one.name: one.dtype for one in kernels["float64"].signature.tables}
    kept = {"column_shift", "column_divisor", "column_factor", "column_offset"} & set(tables)
    # Clipped numbers are in thresholds only.
    assert bool(kept) == (graph.scaled is not None) == (name != "clipped")
    for table in ("threshold", "node", "rank_threshold"):
        assert tables.get(table) in (None, "float32" if kept else "float64")
    X = rows_for(name)
    again = Model.from_package(from_bytes(to_bytes(made.package)))
    agree(pipeline, made, X)
    agree(pipeline, made, X[:1])
    agree(pipeline, again, X)
    agree(pipeline, made, np.asfortranarray(X))
    agree(pipeline, made, X.astype(np.float32))


def test_wide_rows_without_missing_values_have_kernels_of_their_own() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 140)) * 7 + 3
    X[rng.random(X.shape) < 0.2] = np.nan
    y = np.nansum(X[:, :70], axis=1) - 3 * np.isnan(X[:, 70:]).sum(axis=1)
    last = xgb.XGBRegressor(n_estimators=160, max_depth=3, n_jobs=1)
    pipeline = make_pipeline(preprocessing.StandardScaler(), last).fit(X, y)
    graph = read_model(pipeline)
    assert len(graph.feeds) >= 128
    made = hbtvm.compile(graph, batch_sizes=(64,), threads=1)
    kernels = [(kernel.dtype, kernel.missing) for kernel in made.package.kernels]
    assert kernels == [("float64", False), ("float64", True), ("float32", False), ("float32", True)]
    for rows in (X, np.nan_to_num(X), np.nan_to_num(X)[:1]):
        agree(pipeline, made, rows)


def test_leaf_values_in_float64() -> None:
    pipeline, graph = fitted("robust")
    made = hbtvm.compile(graph, batch_sizes=(1, 64), threads=1, dtype="float64")
    assert {kernel.value_dtype for kernel in made.package.kernels} == {"float64"}
    X = rows_for("robust")
    np.testing.assert_allclose(made.predict(X), pipeline.predict(X), rtol=1e-12)


def test_the_trees_behind_the_prologue_are_tuned() -> None:
    _, graph = fitted("standard")
    operands = operands_of(graph, "float32")
    assert [(one.dtype, one.row_dtype) for one in operands] == [
        ("float32", "float64"),
        ("float32", "float32"),
    ]
    assert all(isinstance(one, Forest) for one in operands)
    assert [anchor_of(graph, one) for one in operands] == [graph.anchor, graph.single]
    without = operands_of(graph, "float32", prologue=False)
    assert sorted((one.dtype, one.row_dtype) for one in without) == [
        ("float32", "float32"),
        ("float64", "float64"),
    ]
    with pytest.raises(InputError, match="no arithmetic in front of trees on a GPU"):
        usable(operands[0], None, resolve({"kind": "cuda", "arch": "sm_90"}))


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "clipped"])
def test_checks_of_candidates_tell_a_wrong_prologue_from_the_right_one(name: str) -> None:
    _, graph = fitted(name)
    assert graph.scaled is not None and isinstance(graph.anchor, TreeEnsemble)
    X = sample_rows(graph.anchor, CHECKED_ROWS, "float64")
    expected = plain_sums(graph.anchor, X)
    trees, prologue = graph.scaled.ensemble, graph.scaled.prologue
    np.testing.assert_allclose(plain_sums(trees, prologue.reference(X)), expected, atol=1e-9)
    for wrong in (prologue.constants * [[1.01], [1], [1], [1.01]], np.roll(prologue.constants, 1, axis=1)):
        got = plain_sums(trees, Prologue(wrong).reference(X))
        if not np.array_equal(wrong, prologue.constants):
            assert np.abs(got - expected).max() > 1e-3


def test_a_search_finds_kernels_that_hold(tmp_path: Path) -> None:
    """Candidates are checked with rows near raw thresholds, against trees that have these."""
    (pipeline, graph), log = fitted("min_max"), tmp_path / "log.jsonl"
    found = hbtvm.search(graph, batch_sizes=(20,), trials=10, threads=1, log=log)
    assert found.result.trials == 10 and not found.result.failures
    agree(pipeline, found.model, rows_for("min_max"))
    records = Log(log).read().records
    assert {(one.workload["prologue"], one.workload["dtype"]) for one in records} == {
        ("multiply add", "float32")
    }
    for record in records:
        known = describe(record)
        assert known is not None and known[1].contains(dict(record.config))
        assert known[0](dict(record.config)) is not None
    kernels = {one.dtype: one for one in found.model.package.kernels}
    assert kernels["float64"].seconds is not None and kernels["float32"].seconds is None
    # A compilation takes what the log knows of these trees.
    assert hbtvm.compile(graph, batch_sizes=(20,), threads=1, log=log).package.tuning["origins"] == ["log"]
