"""Reasons on raw columns: pipelines against the game of scikit-learn's own trees, and against libraries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.errors import InputError

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(300, 3)), columns=["a", "b", "c"])
FRAME["city"] = RNG.choice(["Lyon", "Nice", "Paris", "Metz"], 300)
FRAME.loc[RNG.random(300) < 0.1, "a"] = np.nan
SCORE = FRAME["b"] * FRAME["c"] + FRAME["a"].fillna(0.5) + (FRAME["city"] == "Lyon")


def pipeline(model: Any) -> Any:
    """Return a pipeline with several derived columns for most raw columns, fitted."""
    steps = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["a"]),
        (StandardScaler(), ["b"]),
        (KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"), ["c"]),
    )
    return make_pipeline(steps, model)


RAW_OF = [3, 3, 3, 3, 0, 0, 1, 2, 2, 2, 2]  # the raw column behind each derived column


def worth(tree: Any, row: np.ndarray, known: tuple[int, ...]) -> float:
    """Return the value of raw columns for a row of derived columns: a walk over scikit-learn's arrays."""
    waiting, total = [(0, 1.0)], 0.0
    while waiting:
        node, weight = waiting.pop()
        left, right = tree.children_left[node], tree.children_right[node]
        if left < 0:
            total += weight * tree.value[node, 0, 0]
        elif RAW_OF[tree.feature[node]] in known:
            goes = np.float32(row[tree.feature[node]]) <= tree.threshold[node]
            waiting.append((left if goes else right, weight))
        else:
            share = tree.weighted_n_node_samples[left] / tree.weighted_n_node_samples[node]
            waiting += [(left, weight * share), (right, weight * (1 - share))]
    return total


@pytest.mark.parametrize("boosted", [False, True])
def test_all_coalitions_of_raw_columns(boosted: bool) -> None:
    for seed in range(4):
        model = (
            GradientBoostingRegressor(n_estimators=3, max_depth=3, random_state=seed)
            if boosted
            else RandomForestRegressor(3, max_depth=4, random_state=seed)
        )
        fitted = pipeline(model).fit(FRAME, SCORE)
        compiled = hbtvm.compile(fitted, batch_sizes=8, dtype="float64", threads=1, explain=True)
        rows = FRAME[seed * 8 : seed * 8 + 8]
        found = compiled.explain(rows)
        assert found.feature_names == ("a", "b", "c", "city")
        trees = [tree.tree_ for tree in np.ravel(fitted[-1].estimators_)]
        scale = 0.1 if boosted else 1 / 3
        for at, row in enumerate(fitted[0].transform(rows)):
            value = {
                known: scale * sum(worth(tree, row, known) for tree in trees)
                for size in range(5)
                for known in itertools.combinations(range(4), size)
            }
            expected = np.zeros(4)
            for known, column in itertools.product(value, range(4)):
                if column not in known:
                    weight = 1 / (4 * math.comb(3, len(known)))
                    expected[column] += weight * (value[tuple(sorted((*known, column)))] - value[known])
            np.testing.assert_allclose(found.values[at], expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            found.base_values + found.values.sum(axis=1), fitted.predict(rows), rtol=0, atol=1e-9
        )


def test_forests_of_two_and_more_classes_as_shap() -> None:
    shap = pytest.importorskip("shap")
    X = FRAME[["a", "b", "c"]].fillna(0).to_numpy()
    for labels in (SCORE > 0.3, np.digitize(SCORE, [-0.5, 0.5, 1.5])):
        forest = RandomForestClassifier(20, random_state=0).fit(X, labels)
        compiled = hbtvm.compile(forest, batch_sizes=16, threads=1, explain=True)
        found = compiled.explain(X[:20])
        expected = shap.TreeExplainer(forest).shap_values(X[:20], check_additivity=False)
        values = found.values if found.values.ndim == 3 else found.values[:, :, None]
        assert values.shape[2] == (1 if len(forest.classes_) == 2 else 4)
        np.testing.assert_allclose(values, expected[:, :, -values.shape[2] :], rtol=0, atol=2e-6)


@pytest.mark.parametrize("rows", ["float32", "float64"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosting_as_the_library(library: str, rows: Any) -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, 7)).astype(rows)
    X[rng.random(X.shape) < 0.05] = np.nan
    label = np.digitize(np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2]), [-0.5, 0.5])
    if library == "xgboost":
        model = xgboost.XGBClassifier(n_estimators=12, max_depth=5, n_jobs=1).fit(X, label)
        expected = model.get_booster().predict(xgboost.DMatrix(X[:50]), pred_contribs=True)
    else:
        model = lightgbm.LGBMClassifier(n_estimators=12, num_leaves=17, verbose=-1, n_jobs=1).fit(X, label)
        expected = np.asarray(model.predict(X[:50], pred_contrib=True)).reshape(50, 3, 8)
    found = hbtvm.compile(model, batch_sizes=(1, 50), threads=1, explain=True).explain(X[:50])
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found.values, expected[:, :, :-1].transpose(0, 2, 1), atol=5e-6 * largest)
    np.testing.assert_allclose(found.base_values, expected[:, :, -1], rtol=0, atol=5e-6 * largest)


@pytest.mark.parametrize("classes", [2, 3])
def test_symmetric_trees_as_catboost(classes: int) -> None:
    catboost = pytest.importorskip("catboost")
    X = FRAME[["a", "b", "c"]].to_numpy()
    label = np.digitize(SCORE, [0.0, 1.0][: classes - 1])
    settings = {"iterations": 15, "depth": 5, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoostClassifier(**settings).fit(X, label)
    expected = np.asarray(model.get_feature_importance(catboost.Pool(X[:40]), type="ShapValues"))
    expected = expected.reshape(40, -1, 4)
    found = hbtvm.compile(model, batch_sizes=8, threads=1, explain=True).explain(X[:40])
    values = found.values.reshape(40, 3, -1)
    np.testing.assert_allclose(values, expected[:, :, :3].transpose(0, 2, 1), rtol=0, atol=2e-6)
    np.testing.assert_allclose(found.base_values.reshape(40, -1), expected[:, :, 3], rtol=0, atol=2e-6)


def test_linear_models_by_column() -> None:
    steps = make_column_transformer(
        (OneHotEncoder(), ["city"]),
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["a"]),
        (StandardScaler(), ["b", "c"]),
    )
    fitted = make_pipeline(steps, LogisticRegression()).fit(FRAME, SCORE > 0.3)
    compiled = hbtvm.compile(fitted, batch_sizes=8, threads=1, explain=True)
    found = compiled.explain(FRAME[:20])
    weights, derived = fitted[-1].coef_[0], fitted[0].transform(FRAME[:20])
    for column in range(4):
        mine = [at for at, raw in enumerate([3, 3, 3, 3, 0, 0, 1, 2]) if raw == column]
        expected = np.asarray(derived)[:, mine] @ weights[mine]
        change = found.values[:, column] - expected
        np.testing.assert_allclose(change, change[0], rtol=0, atol=1e-12)
    cities = dict(zip(sorted(FRAME["city"].unique()), weights[:4] - weights[:4].mean(), strict=True))
    np.testing.assert_allclose(found.values[:, 3], FRAME["city"][:20].map(cities), rtol=0, atol=1e-12)
    middle = FRAME[["a", "b", "c"]].mean().to_dict() | {"city": "Lyon"}
    np.testing.assert_allclose(compiled.explain(middle).values[0, :3], 0, atol=1e-12)
    np.testing.assert_allclose(
        found.base_values + found.values.sum(axis=1), fitted.decision_function(FRAME[:20]), atol=1e-12
    )
    over = compiled.explain(FRAME[:20], background=FRAME[50:90])
    mean = fitted.decision_function(FRAME[50:90]).mean()
    np.testing.assert_allclose(over.base_values, mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        over.base_values + over.values.sum(axis=1), fitted.decision_function(FRAME[:20]), atol=1e-12
    )


def test_additive_models_by_their_terms() -> None:
    glassbox = pytest.importorskip("interpret.glassbox")
    X = FRAME[["a", "b", "c"]].fillna(0).to_numpy()
    model = glassbox.ExplainableBoostingRegressor(interactions=1, max_rounds=30, n_jobs=1).fit(X, SCORE)
    found = hbtvm.compile(model, batch_sizes=8, threads=1, explain=True).explain(X[:20])
    terms = np.array([model.explain_local(X[i : i + 1]).data(0)["scores"] for i in range(20)])
    expected = np.zeros((20, 3))
    for term, columns in enumerate(model.term_features_):
        for column in columns:
            expected[:, column] += terms[:, term] / len(columns)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        found.base_values + found.values.sum(axis=1), model.predict(X[:20]), rtol=0, atol=1e-5
    )


def test_weighted_sums_of_forests_as_their_members() -> None:
    X = FRAME[["a", "b", "c"]].fillna(0).to_numpy()

    def explained(model: Any) -> Any:
        return hbtvm.compile(model, batch_sizes=8, threads=1, explain=True).explain(X[:20])

    members = [
        ("forest", RandomForestRegressor(5, random_state=0)),
        ("boosted", GradientBoostingRegressor(n_estimators=5, random_state=0)),
    ]
    vote = VotingRegressor(members, weights=[3, 1]).fit(X, SCORE)
    parts = [explained(member) for member in vote.estimators_]
    found = explained(vote)
    np.testing.assert_allclose(found.values, (3 * parts[0].values + parts[1].values) / 4, rtol=0, atol=3e-6)
    np.testing.assert_allclose(
        found.base_values, (3 * parts[0].base_values + parts[1].base_values) / 4, rtol=0, atol=1e-9
    )
    stack = StackingRegressor(members, final_estimator=Ridge()).fit(X, SCORE)
    parts = [explained(member) for member in stack.estimators_]
    expected = sum(
        weight * part.values for weight, part in zip(stack.final_estimator_.coef_, parts, strict=True)
    )
    np.testing.assert_allclose(explained(stack).values, expected, rtol=0, atol=3e-6)
    # Behind the scaler, trees for float32 rows compare in float32, and the others in float64.
    scaled = make_pipeline(StandardScaler(), RandomForestRegressor(5, random_state=0))
    mixed = [("scaled", scaled), ("histograms", HistGradientBoostingRegressor(max_iter=5))]
    with pytest.raises(InputError, match="trees are combined by other operators, or pass background="):
        explained(VotingRegressor(mixed).fit(X, SCORE))
    forests = [(name, RandomForestClassifier(5, random_state=at)) for at, name in enumerate("ab")]
    soft = VotingClassifier(forests, voting="soft").fit(X, SCORE > 0.3)
    parts = [explained(member) for member in soft.estimators_]
    found = explained(soft)
    np.testing.assert_allclose(found.values, (parts[0].values + parts[1].values) / 2, rtol=0, atol=3e-6)
    with pytest.raises(InputError, match="trees are combined by other operators, or pass background="):
        explained(CalibratedClassifierCV(forests[0][1], cv=2).fit(X, SCORE > 0.3))


def test_outputs_of_steps_that_mix_columns_have_exact_values() -> None:
    X = FRAME[["a", "b", "c"]].fillna(0).to_numpy()
    forest = RandomForestRegressor(3, max_depth=4, random_state=0)
    pipeline = make_pipeline(PCA(2), forest).fit(X, SCORE)
    steps = hbtvm.compile(pipeline[:-1], batch_sizes=8, threads=1)
    found = hbtvm.compile(pipeline[-1], batch_sizes=8, threads=1, explain=True).explain(steps.transform(X))
    assert found.values.shape == (len(X), 2)
    total = found.base_values + found.values.sum(axis=1)
    np.testing.assert_allclose(total, pipeline.predict(X), rtol=0, atol=3e-6)


def test_steps_that_mix_columns_are_refused_with_advice() -> None:
    X = FRAME[["a", "b", "c"]].fillna(0).to_numpy()
    mixed = make_pipeline(PCA(2), RandomForestRegressor(3, random_state=0)).fit(X, SCORE)
    compiled = hbtvm.compile(mixed, batch_sizes=8, threads=1, explain=True)
    with pytest.raises(InputError, match="several raw columns, or pass background= to estimate them"):
        compiled.explain(X[:2])
    assert compiled.explain(X[:2], background=X[:5]).values.shape == (2, 3)


def test_packages_keep_reasons(tmp_path: Any) -> None:
    X = FRAME[["b", "c"]].to_numpy()
    ridge, forest = Ridge().fit(X, SCORE), RandomForestRegressor(4, random_state=0).fit(X, SCORE)
    for model in (ridge, forest):
        compiled = hbtvm.compile(model, batch_sizes=8, threads=1, explain=True)
        compiled.save(tmp_path / "model.tar")
        loaded = hbtvm.load(tmp_path / "model.tar")
        np.testing.assert_array_equal(loaded.explain(X[:9]).values, compiled.explain(X[:9]).values)
