"""Selectors keep the columns that the library keeps, ties and all."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_regression,
)
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    SGDClassifier,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends.transformers.selectors.importances import scores as importance_scores
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.evaluate import evaluate
from tests.frontends.transformers.oracle import check, raw_of, record_of, table_of


def data(seed: int = 0, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(150, 12))
    y = np.digitize(x[:, 0] - x[:, 3] + 0.3 * rng.normal(size=150), np.linspace(-1, 1, classes - 1))
    # Ties: columns that are the same, and some that are constant (their scores are NaN).
    x[:, 5] = x[:, 0]
    x[:, 8] = x[:, 6] = x[:, 3]
    x[:, 10] = 1.5
    return x, y


UNIVARIATE = {
    **{f"k {k}": SelectKBest(k=k) for k in (0, 1, 2, 3, 4, 5, 11, "all")},
    **{f"percentile {p}": SelectPercentile(percentile=p) for p in (0, 1, 10, 15, 30, 40, 77, 100)},
    "fpr": SelectFpr(alpha=0.1),
    "fdr": SelectFdr(alpha=0.2),
    "fwe": SelectFwe(alpha=0.1),
    "regression": SelectKBest(f_regression, k=4),
    **{
        f"generic {mode}": GenericUnivariateSelect(mode=mode, param=param)
        for mode, param in {"percentile": 30, "k_best": 3, "fpr": 0.1, "fdr": 0.2, "fwe": 0.1}.items()
    },
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNIVARIATE)
def test_univariate(name: str) -> None:
    x, y = data()
    table = check(UNIVARIATE[name].fit(x, y), x.astype("float32"))
    assert not any(column.allow_nan or column.allow_inf for column in table.columns)


@pytest.mark.filterwarnings("ignore")
def test_fdr_may_keep_nothing() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 5)), rng.integers(0, 2, 60)
    assert not len(check(SelectFdr(alpha=1e-9).fit(x, y), x))


@pytest.mark.parametrize("threshold", [0.0, 0.9, 1.1])
def test_variance(threshold: float) -> None:
    x, _ = data()
    table = check(VarianceThreshold(threshold).fit(x), x)
    assert all(column.allow_nan and column.allow_inf for column in table.columns)


MODELS = {
    "lasso": Lasso(alpha=0.05),
    "elastic net": ElasticNet(alpha=0.05, l1_ratio=1.0),
    "elastic net 0.5": ElasticNet(alpha=0.05),
    "linear": LinearRegression(),
    "l1": LogisticRegression(l1_ratio=1.0, solver="saga", C=0.1, max_iter=50),
    "l2": LogisticRegression(),
    "l1 svc": LinearSVC(penalty="l1", C=0.05),
    "sgd l1": SGDClassifier(penalty="l1", random_state=0, max_iter=5),
    "cv": LogisticRegressionCV(l1_ratios=[1.0], solver="saga", Cs=[0.1], max_iter=20, cv=2),
    "tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "forest": RandomForestClassifier(20, random_state=0),
    "extra trees": ExtraTreesRegressor(15, random_state=0),
    "stumps": RandomForestClassifier(20, max_depth=1, max_features=1, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=8, random_state=0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("threshold", [None, "mean", "median", "1.25*mean", "0.5 * median", 0.05])
@pytest.mark.parametrize("name", MODELS)
def test_from_model(name: str, threshold: Any) -> None:
    x, y = data()
    check(SelectFromModel(MODELS[name], threshold=threshold).fit(x, y), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("most", [1, 3, lambda x: x.shape[1] // 4])
@pytest.mark.parametrize("order", [1, 2, np.inf])
def test_from_model_at_most_some(most: Any, order: float) -> None:
    x, y = data()
    # A function is never read; the number that it gave is.
    if callable(most):
        most = len
        x = x[:5]
        y = np.array([0, 1, 2, 1, 0])
    selector = SelectFromModel(LogisticRegression(), max_features=most, norm_order=order, threshold=-np.inf)
    check(selector.fit(x, y), x)


BOOSTERS = {
    "lightgbm split": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1),
    "lightgbm gain": lightgbm.LGBMRegressor(n_estimators=9, verbose=-1, n_jobs=1, importance_type="gain"),
    "lightgbm stumps": lightgbm.LGBMClassifier(n_estimators=2, num_leaves=2, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBClassifier(n_estimators=12, n_jobs=1),
    "xgboost dart": xgboost.XGBRegressor(n_estimators=7, booster="dart", rate_drop=0.3, n_jobs=1),
    "xgboost none": xgboost.XGBRegressor(n_estimators=2, gamma=1e9, n_jobs=1),
    **{
        kind: xgboost.XGBRegressor(n_estimators=15, importance_type=kind, n_jobs=1)
        for kind in ("gain", "total_gain", "weight", "cover", "total_cover")
    },
}


@pytest.mark.parametrize("name", BOOSTERS)
def test_from_boosters(name: str) -> None:
    x, y = data(1)
    x = x[:400].copy()
    x[::9, 3] = np.nan
    model = BOOSTERS[name].fit(x, y[:400])
    importances = model.feature_importances_
    found = importance_scores(record_of(SelectFromModel(model)), record_of(model), 12, Where())
    if name.startswith("lightgbm"):
        # The pickle's text has gains with six digits.
        np.testing.assert_allclose(found, importances, rtol=1e-5)
    else:
        np.testing.assert_array_equal(found, importances)
        assert found.dtype == importances.dtype
    for threshold in (None, "median", "0.7*mean", float(np.sort(importances)[-4])):
        if name != "xgboost none":  # of all zeros every one is the mean
            selector = SelectFromModel(model, threshold=threshold, prefit=True)
            if name != "lightgbm gain" or isinstance(threshold, str):
                check(selector.fit(x, y[:400]), x)


@pytest.mark.filterwarnings("ignore")
def test_a_booster_selects_by_its_best_iteration() -> None:
    x, y = data(1)
    given = {"eval_set": [(x[::2], y[::2])]}
    for model in (
        lightgbm.LGBMClassifier(n_estimators=60, learning_rate=0.9, verbose=-1, early_stopping_round=2),
        xgboost.XGBClassifier(n_estimators=60, learning_rate=1.5, early_stopping_rounds=2, n_jobs=1),
    ):
        fit = {"verbose": False} if isinstance(model, xgboost.XGBClassifier) else {}
        model.fit(x[1::2], y[1::2], **given, **fit)
        assert 0 < (model.best_iteration_ if hasattr(model, "best_iteration_") else model.best_iteration) < 40
        check(SelectFromModel(model, prefit=True), x)
        check(SelectFromModel(model, max_features=3, threshold=-np.inf, prefit=True), x)


def test_from_fitted_models() -> None:
    x, y = data()
    check(SelectFromModel(MODELS["forest"].fit(x, y), prefit=True).fit(x, y), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "selector",
    [
        RFE(LogisticRegression(), n_features_to_select=4),
        RFECV(DecisionTreeClassifier(random_state=0), cv=2),
        SequentialFeatureSelector(LogisticRegression(), n_features_to_select=2, cv=2),
    ],
)
def test_stored_support(selector: Any) -> None:
    x, y = data()
    check(selector.fit(x, y), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "accepts"),
    [
        (LogisticRegression(), False),
        (DecisionTreeClassifier(random_state=0), True),
        (RandomForestClassifier(3), True),
        (GradientBoostingClassifier(n_estimators=2), False),
        (lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1), True),
    ],
)
def test_missing_values_pass_as_with_the_model(model: Any, accepts: bool) -> None:
    x, y = data()
    selector = RFE(model, n_features_to_select=5).fit(x, y)
    rows = x.copy()
    rows[::7] = np.nan
    if accepts:
        check(selector, rows)
        return
    with pytest.raises(ValueError, match="NaN"):
        selector.transform(rows)
    with pytest.raises(InputError, match="NaN"):
        evaluate(table_of(selector, 12), raw_of(rows))


def test_importances_that_are_not_known_are_refused() -> None:
    x, y = data()
    hist = SelectFromModel(HistGradientBoostingClassifier(max_iter=2).fit(x, y), prefit=True)
    with pytest.raises(UnsupportedModel, match="has no feature_importances_"):
        table_of(hist, 12)
    linear = xgboost.XGBClassifier(n_estimators=2, booster="gblinear").fit(x, y)
    trees = xgboost.XGBClassifier(n_estimators=2).fit(x, y)
    vectors = xgboost.XGBClassifier(n_estimators=2, multi_strategy="multi_output_tree").fit(x, y)
    for model, text in (
        (linear, "importances of an XGBoost 'gblinear'"),
        (trees.set_params(importance_type="other"), "type 'other' of a XGBClassifier"),
        (lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, importance_type="x"), "type 'x'"),
        (vectors, "vectors in their leaves"),
    ):
        model = model if isinstance(model, xgboost.XGBClassifier) else model.fit(x, y)
        with pytest.raises(UnsupportedModel, match=text):
            table_of(SelectFromModel(model, prefit=True), 12)
    own = SelectFromModel(HistGradientBoostingClassifier(max_iter=2), importance_getter=len)
    with pytest.raises(UnsupportedModel, match="custom function or path"):
        table_of(own.set_params(prefit=True, estimator=LogisticRegression().fit(x, y)), 12)
