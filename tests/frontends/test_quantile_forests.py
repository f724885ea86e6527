"""quantile-forest's regressors against the library: default quantiles, means, bounds of monotone trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.frontends.pickles import from_live
from hbtvm.frontends.registry import ESTIMATORS, read
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.operators.base import evaluate

forests = pytest.importorskip("quantile_forest")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3)).astype(np.float32)
Y = X[:, 0] * 2 + RNG.normal(size=150)
BOTH = np.c_[Y, X[:, 1]]
ROWS = np.concatenate([X, RNG.normal(size=(100, 3)) * 2])
KINDS = (forests.RandomForestQuantileRegressor, forests.ExtraTreesQuantileRegressor)


def response(model: Any, rows: np.ndarray) -> np.ndarray:
    """Return the response from its nodes, which no kernel computes."""
    record = from_live(model)
    predicts = ESTIMATORS["quantile_forest", record.kind].predicts
    assert predicts is not None
    table = Table(tuple(Column(Raw(i)) for i in range(rows.shape[1])))
    predictor = predicts(record, table, Where(estimators=ESTIMATORS))
    values = evaluate([predictor.outputs["response"]], lambda leaf: rows.astype(np.float64))[0]
    return values[:, 0] if values.shape[1] == 1 else values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantiles", [0.5, [0.1, 0.5, 0.93], [0.0, 1.0, 0.25], None, "mean", ["mean"]])
def test_one_target(kind: Any, quantiles: Any) -> None:
    for leaves in (1, 3, None):
        model = kind(7, max_depth=4, max_samples_leaf=leaves, random_state=0, default_quantiles=quantiles)
        model.fit(X, Y)
        if leaves != 1 and quantiles not in (None, "mean", ["mean"]):
            with pytest.raises(UnsupportedModel, match="supported are max_samples_leaf=1"):
                from_object(model)
            continue
        np.testing.assert_allclose(response(model, ROWS), model.predict(ROWS), rtol=1e-12, atol=1e-14)


def test_several_targets_and_bounds() -> None:
    for quantiles in (0.3, None):
        for leaves in (1,) if quantiles else (1, None):
            model = KINDS[0](5, max_samples_leaf=leaves, random_state=0, default_quantiles=quantiles)
            model.fit(X, BOTH)
            np.testing.assert_allclose(response(model, ROWS), model.predict(ROWS), rtol=1e-12, atol=1e-14)
    model = KINDS[0](5, random_state=0, default_quantiles=[0.2, 0.8])
    with pytest.raises(UnsupportedModel, match="choose one default quantile"):
        from_object(model.fit(X, BOTH))
    monotone = KINDS[0](9, max_depth=3, random_state=0, default_quantiles=[0.2], monotonic_cst=[1, 0, 0])
    monotone.fit(X, Y)
    np.testing.assert_allclose(response(monotone, ROWS), monotone.predict(ROWS), rtol=1e-12, atol=1e-14)


def test_behind_a_scaler_and_compiled() -> None:
    inner = KINDS[0](4, max_depth=4, random_state=0, default_quantiles=[0.1, 0.9])
    model = make_pipeline(StandardScaler(), inner).fit(X.astype(np.float64), Y)
    compiled = hbtvm.compile(model, batch_sizes=100, threads=1, strategies="tree_traversal")
    np.testing.assert_allclose(compiled.predict(ROWS), model.predict(ROWS), rtol=1e-6)


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match="not fitted"):
        from_object(KINDS[0]())
    with pytest.raises(UnsupportedModel, match="at most 256 are supported"):
        from_object(KINDS[0](257, max_depth=1).fit(X, Y))
    with pytest.raises(UnsupportedModel, match="sparse_pickle=False"):
        from_object(KINDS[0](2, max_depth=1).fit(X, Y, sparse_pickle=True))


def test_damaged_records() -> None:
    model = KINDS[0](2, max_depth=2, random_state=0, default_quantiles=0.5).fit(X, Y)
    odd = (
        None,
        [],
        np.zeros((1, 2)),
        np.full((2, 7, 1, 1), 999),
        np.zeros((2, 1, 1, 1), int),
        np.zeros(3),
        "x",
    )
    for position in range(4):
        for value in odd:
            record = from_live(model)
            forest = record.get("forest_")
            forest.args = (*forest.args[:position], value, *forest.args[position + 1 :])
            if position == 2:  # bounds matter for monotone trees
                record.attributes["monotonic_cst"] = [1, 0, 0]
            with pytest.raises(ModelError):
                read(record)
