"""LightGBM's linear trees against LightGBM: leaves with coefficients, and missing values in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import VotingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import ModelError
from hbtvm.frontends import load_model
from hbtvm.frontends.lightgbm.model import from_text
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Input
from hbtvm.operators.base import evaluate

RNG = np.random.default_rng(0)


def _numbers(count: int) -> np.ndarray:
    rows = RNG.normal(size=(count, 4)) * 2
    rows[RNG.random(rows.shape) < 0.1] = np.nan
    return rows


X = _numbers(300)
TARGET = np.nan_to_num(X[:, 0]) * np.where(X[:, 1] > 0, 2, -1) + np.nan_to_num(X[:, 2]) / 3
ROWS = np.concatenate([X, _numbers(300), np.full((1, 4), np.nan)])
SMALL: dict[str, Any] = {"linear_tree": True, "num_leaves": 6, "verbose": -1, "num_threads": 1}
OBJECTIVES: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "regression": (TARGET, {}),
    "binary": ((TARGET > 0).astype(int), {}),
    "multiclass": ((TARGET > 0).astype(int) + (TARGET > 1), {"num_class": 3}),
    "poisson": ((TARGET > 0).astype(int), {}),
}


def answers(graph: Graph, rows: np.ndarray, output: str | None = None) -> Any:
    """Return an output of a bare model, from the nodes of its scores."""
    assert graph.scores_of is not None
    scores = evaluate([graph.scores_of(Input(rows.shape[1]))], lambda leaf: rows.astype(np.float64))[0]
    return graph.output.compute(output, scores)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_boosters(objective: str, tmp_path: Path) -> None:
    target, more = OBJECTIVES[objective]
    booster = lgb.train({**SMALL, **more, "objective": objective}, lgb.Dataset(X, target), 6)
    booster.save_model(tmp_path / "model.txt")
    for source in (booster, tmp_path / "model.txt"):
        graph = load_model(source)
        for rows in (ROWS, ROWS.astype(np.float32)):
            expected = booster.predict(rows, raw_score=True)
            np.testing.assert_allclose(answers(graph, rows, "raw"), expected, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(answers(graph, rows), booster.predict(rows), rtol=1e-12, atol=1e-12)


def test_compiled_with_categories() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["k"] = pd.Categorical(np.array(["u", "v", "w"])[np.arange(len(X)) % 3])
    options = {"num_leaves": 6, "min_data_per_group": 5, "cat_smooth": 1, "n_jobs": 1, "verbose": -1}
    model = lgb.LGBMClassifier(n_estimators=5, linear_tree=True, **options)
    model.fit(frame, (TARGET + (frame.k == "u") > 0).astype(int))
    compiled = hbtvm.compile(model, batch_sizes=100, threads=1)
    rows = pd.DataFrame(ROWS, columns=list("abcd"))
    rows["k"] = pd.Categorical(np.array(["v", "new", None, "w", "u"])[np.arange(len(ROWS)) % 5])
    np.testing.assert_array_equal(compiled.predict(rows), model.predict(rows))
    np.testing.assert_allclose(compiled.predict_proba(rows), model.predict_proba(rows), rtol=1e-6)
    with pytest.raises(hbtvm.InputError, match="infinity"):
        compiled.predict(rows.assign(a=np.inf))


def test_within_other_models() -> None:
    rows, clean = np.nan_to_num(ROWS), np.nan_to_num(X)
    inner = lgb.LGBMRegressor(n_estimators=4, linear_tree=True, n_jobs=1, verbose=-1, num_leaves=6)
    pipe = make_pipeline(StandardScaler(), inner).fit(X, TARGET)
    voting = VotingRegressor([("trees", inner), ("line", LinearRegression())]).fit(clean, TARGET)
    for model, given in ((pipe, ROWS), (voting, rows)):
        compiled = hbtvm.compile(model, batch_sizes=100, threads=1)
        np.testing.assert_allclose(compiled.predict(given), model.predict(given), rtol=1e-6, atol=1e-9)


def test_damaged_texts() -> None:
    text = lgb.train({**SMALL, "objective": "regression"}, lgb.Dataset(X, TARGET), 2).model_to_string()
    rng, ends = random.Random(4), {"read": 0, "refused": 0}
    keys = ("leaf_const=", "num_features=", "leaf_features=", "leaf_coeff=", "is_linear=", "num_leaves=")
    for _ in range(300):
        lines = text.split("\n")
        at = rng.choice([i for i, line in enumerate(lines) if line.startswith(keys)])
        key, _, values = lines[at].partition("=")
        words = values.split()
        odd = rng.choice(["-1", "9", "nan", "x", "1e999", "", "2147483648", "0.5", "1" * 400])
        if words:
            words[rng.randrange(len(words))] = odd
        lines[at] = rng.choice([f"{key}={' '.join(words)}", f"{key}=", f"{key}={odd}", ""])
        try:
            from_text("\n".join(lines))
            ends["read"] += 1
        except ModelError as error:
            assert str(error).isprintable() and len(str(error)) < 2000
            ends["refused"] += 1
    assert min(ends.values()) > 5
