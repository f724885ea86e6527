"""Shapley interaction values against all coalitions, against XGBoost and shap, and of pipelines."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression

import hbtvm
from hbtvm.errors import InputError
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.runtime.explaining.interactions import interactions, of_pairs
from hbtvm.runtime.package.facts import anchor_facts
from hbtvm.strategies import make_reasons, strategies_on, workload_of
from tests.ensembles import random_ensemble
from tests.kernels import CPU
from tests.reasons.coalitions import game, with_covers
from tests.reasons.test_definition import FORMS
from tests.reasons.test_pipelines import FRAME, SCORE, pipeline

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

QUADRATURE = strategies_on(CPU, "reasons")["quadrature"]
X = FRAME[["a", "b", "c"]].to_numpy()


def by_definition(reasons: TreeReasons, row: np.ndarray) -> np.ndarray:
    """Return half of the interaction of each pair of players, shape (outputs, players, players)."""
    players, ensemble = reasons.n_players, reasons.ensemble
    value = {
        frozenset(known): game(ensemble, reasons.player, row, known)
        for size in range(players + 1)
        for known in itertools.combinations(range(players), size)
    }
    result = np.zeros((ensemble.n_outputs, players, players))
    for known, (i, j) in itertools.product(value, itertools.permutations(range(players), 2)):
        if i not in known and j not in known:
            weight = 1 / (2 * (players - 1) * math.comb(players - 2, len(known)))
            joint = value[known | {i, j}] - value[known | {i}] - value[known | {j}] + value[known]
            result[:, i, j] += weight * joint
    return result


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
@pytest.mark.parametrize("merged", [False, True], ids=["columns", "merged"])
def test_all_coalitions(form: dict[str, Any], merged: bool) -> None:
    for seed in range(16):
        rng = np.random.default_rng(seed)
        ensemble = with_covers(random_ensemble(rng, trees=2, features=4, **form), rng)
        player = np.array([0, 1, 0, 2] if merged else [0, 1, 2, 3], np.int32)
        reasons = TreeReasons(ensemble, player, int(player.max()) + 1)
        operand = make_reasons(reasons, ensemble.compare_dtype, "float64")
        config = QUADRATURE.default(workload_of(operand, 1), CPU)
        tables = {**QUADRATURE.shared(operand), **QUADRATURE.tables(operand, config)}
        rows = rng.normal(size=(3, 4)).round(1).astype(ensemble.compare_dtype)
        rows[rng.random(rows.shape) < 0.1] = np.nan
        found = interactions(tables, anchor_facts(reasons), rows, ensemble.n_outputs)
        expected = [by_definition(reasons, row) for row in rows]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_boosting_as_xgboost(classes: int, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    label = np.digitize(SCORE, [0.0, 1.0][: classes - 1])
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=5, n_jobs=1).fit(X, label)
    expected = model.get_booster().predict(xgboost.DMatrix(X[:70]), pred_interactions=True)
    hbtvm.compile(model, batch_sizes=(1, 100), threads=1, explain=True).save(tmp_path / "model.tar")
    loaded = hbtvm.load(tmp_path / "model.tar")
    found = loaded.explain(X[:70], interactions=True)
    expected = expected.reshape(70, -1, 4, 4)
    values, base = found.values.reshape(70, 3, 3, -1), found.base_values.reshape(70, -1)
    tolerance = 5e-6 * np.abs(expected).max()
    np.testing.assert_allclose(values, expected[:, :, :3, :3].transpose(0, 2, 3, 1), rtol=0, atol=tolerance)
    np.testing.assert_allclose(base, expected[:, :, 3, 3], rtol=0, atol=tolerance)
    sums = loaded.explain(X[:70]).values
    np.testing.assert_allclose(found.values.sum(axis=2), sums, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.data, X[:70])


def test_forests_as_shap() -> None:
    shap = pytest.importorskip("shap")
    filled = np.nan_to_num(X)
    forest = RandomForestClassifier(10, max_depth=6, random_state=0).fit(filled, SCORE > 0.3)
    found = hbtvm.compile(forest, batch_sizes=16, threads=1, explain=True).explain(
        filled[:20], interactions=True
    )
    expected = shap.TreeExplainer(forest).shap_interaction_values(filled[:20])[..., 1]
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=2e-6)


def test_pipelines_have_interactions_of_raw_columns() -> None:
    fitted = pipeline(RandomForestRegressor(4, max_depth=4, random_state=0)).fit(FRAME, SCORE)
    compiled = hbtvm.compile(fitted, batch_sizes=8, dtype="float64", threads=1, explain=True)
    found = compiled.explain(FRAME[:9], interactions=True)
    assert found.values.shape == (9, 4, 4) and found.feature_names == ("a", "b", "c", "city")
    np.testing.assert_allclose(
        found.values.sum(axis=(1, 2)) + found.base_values, fitted.predict(FRAME[:9]), rtol=0, atol=1e-9
    )
    alone = compiled.explain(FRAME[3:4], interactions=True)
    np.testing.assert_allclose(alone.values[0], found.values[3], rtol=0, atol=1e-12)


def test_linear_models_have_main_effects_alone() -> None:
    filled = np.nan_to_num(X)
    linear = LogisticRegression().fit(filled, SCORE > 0.3)
    compiled = hbtvm.compile(linear, batch_sizes=8, threads=1, explain=True)
    found = compiled.explain(filled[:5], interactions=True).values
    np.testing.assert_array_equal(found, compiled.explain(filled[:5]).values[:, :, None] * np.eye(3))
    with pytest.raises(InputError, match=r"interactions are exact, .* leave out background="):
        compiled.explain(filled[:5], background=filled[:9], interactions=True)  # type: ignore[call-overload]


def test_gpus_and_many_columns_are_refused() -> None:
    filled = np.nan_to_num(X)
    forest = RandomForestRegressor(2, max_depth=2, random_state=0).fit(filled, SCORE)
    compiled = hbtvm.compile(forest, batch_sizes=8, threads=1, explain=True)
    view, explained = compiled.views["reasons"], compiled.explain(filled[:2])
    target = {**view.package.target, "kind": "cuda"}
    on_gpu: Any = SimpleNamespace(package=SimpleNamespace(target=target, output=view.package.output))
    with pytest.raises(InputError, match="packages for GPUs have no interactions"):
        of_pairs(on_gpu, filled[:2], explained)
    shape = SimpleNamespace(shape=(1, 5_001))
    wide: Any = SimpleNamespace(package=SimpleNamespace(target=view.package.target, output=shape))
    with pytest.raises(InputError, match="5,000 columns have too many pairs"):
        of_pairs(wide, filled[:2], explained)


def test_sums_of_terms_are_refused() -> None:
    glassbox = pytest.importorskip("interpret.glassbox")
    filled = pd.DataFrame(np.nan_to_num(X), columns=["a", "b", "c"])
    model = glassbox.ExplainableBoostingRegressor(interactions=1, max_rounds=5, n_jobs=1).fit(filled, SCORE)
    compiled = hbtvm.compile(model, batch_sizes=8, threads=1, explain=True)
    with pytest.raises(InputError, match="has reasons, but no interactions"):
        compiled.explain(filled[:2], interactions=True)
