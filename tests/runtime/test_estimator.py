"""Compiled models as estimators of scikit-learn: its own tools are the oracle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

import hbtvm
from hbtvm.errors import InputError, NoMethodError

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(120, 4)), columns=["age", "income", "<b>tenure</b>", "visits"])
Y = (X["age"] + X["income"] > 0).to_numpy(int) + (X["visits"] > 1)
NAMES = np.array(["high", "low", "mid"])[Y]
WEIGHTS = RNG.uniform(size=len(Y))
FOREST = RandomForestClassifier(6, max_depth=4, random_state=0).fit(X, Y)
LINEAR = LinearRegression().fit(X, np.column_stack([X["age"] ** 2, Y]))


@pytest.fixture(scope="module")
def forest() -> hbtvm.Model:
    return hbtvm.compile(FOREST, batch_sizes=100, threads=1)


@pytest.fixture(scope="module")
def linear() -> hbtvm.Model:
    return hbtvm.compile(LINEAR, batch_sizes=100, threads=1)


def test_attributes_and_tags(forest: hbtvm.Model, linear: hbtvm.Model) -> None:
    assert is_classifier(forest)
    assert is_regressor(linear)
    assert not is_classifier(linear)
    check_is_fitted(forest)
    check_is_fitted(forest, "classes_")
    ours, theirs = get_tags(forest), get_tags(FOREST)
    assert ours.input_tags.allow_nan == theirs.input_tags.allow_nan
    assert ours.target_tags.required == theirs.target_tags.required
    assert get_tags(linear).target_tags.multi_output
    np.testing.assert_array_equal(forest.classes_, FOREST.classes_)
    np.testing.assert_array_equal(forest.feature_names_in_, FOREST.feature_names_in_)
    assert forest.n_features_in_ == 4


def test_methods_that_the_library_lacks_are_absent(forest: hbtvm.Model, linear: hbtvm.Model) -> None:
    """Scorers choose the first method that an estimator has."""
    for ours, theirs in ((forest, FOREST), (linear, LINEAR)):
        for name in ("predict_proba", "predict_log_proba", "decision_function", "score_samples", "score"):
            assert hasattr(ours, name) == hasattr(theirs, name), name
        assert not hasattr(copy.copy(ours), "decision_function")
        assert isinstance(pickle.loads(pickle.dumps(ours)), hbtvm.Model)
    with pytest.raises(NoMethodError, match="this regressor has no class probabilities"):
        linear.predict_proba(X)
    assert issubclass(NoMethodError, InputError)
    clusters = hbtvm.compile(KMeans(2, n_init=1).fit(X), batch_sizes=100, threads=1)
    assert get_tags(clusters).estimator_type == "clusterer"
    assert get_tags(clusters).transformer_tags is not None
    with pytest.raises(NoMethodError, match="score is for classifiers and regressors, and KMeans"):
        clusters.score(X, Y)


def test_fitting_and_parameters(forest: hbtvm.Model) -> None:
    with pytest.raises(InputError, match=r"fit the RandomForestClassifier and compile it again.*Frozen"):
        forest.fit(X, Y)
    assert forest.get_params() == {}
    assert forest.set_params() is forest
    with pytest.raises(InputError, match="no parameter 'max_depth'"):
        forest.set_params(max_depth=3)
    assert clone(forest) is forest
    with np.errstate(divide="ignore"):
        theirs = FOREST.predict_log_proba(X)
    np.testing.assert_allclose(forest.predict_log_proba(X), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_scores(forest: hbtvm.Model, linear: hbtvm.Model, weights: np.ndarray | None) -> None:
    assert forest.score(X, Y, weights) == pytest.approx(FOREST.score(X, Y, weights))
    wrong = np.column_stack([Y, np.full(len(Y), 2.0)])  # a constant target
    for targets in (LINEAR.predict(X) + wrong, wrong):
        assert linear.score(X, targets, weights) == pytest.approx(LINEAR.score(X, targets, weights))
    with pytest.raises(InputError, match=r"expected y of shape \(120,\), as the prediction, got \(3,\)"):
        forest.score(X, Y[:3])
    with pytest.raises(InputError, match=r"expected sample_weight of shape \(120,\)"):
        forest.score(X, Y, WEIGHTS[:3])


def test_scorers(forest: hbtvm.Model) -> None:
    for name in ("accuracy", "roc_auc_ovr", "neg_log_loss", "f1_macro"):
        scorer = get_scorer(name)
        assert scorer(forest, X, Y) == pytest.approx(scorer(FOREST, X, Y)), name


def test_inspection(forest: hbtvm.Model, linear: hbtvm.Model) -> None:
    shuffled = [permutation_importance(m, X, Y, n_repeats=2, random_state=0) for m in (forest, FOREST)]
    np.testing.assert_allclose(shuffled[0].importances, shuffled[1].importances)
    curves = [
        partial_dependence(m, X, ["income"], grid_resolution=5, method="brute") for m in (forest, FOREST)
    ]
    np.testing.assert_allclose(curves[0]["average"], curves[1]["average"], rtol=1e-5)
    curves = [partial_dependence(m, X, [0], grid_resolution=5, method="brute") for m in (linear, LINEAR)]
    np.testing.assert_allclose(curves[0]["average"], curves[1]["average"], rtol=1e-5)


def test_around_frozen_models(forest: hbtvm.Model) -> None:
    """Calibration, voting, stacking and cross-validation of a model that stays as it is."""

    def results(model: Any) -> list[np.ndarray]:
        frozen = FrozenEstimator(model)
        around = [
            CalibratedClassifierCV(frozen, cv=3),
            VotingClassifier([("a", frozen), ("b", LogisticRegression())], voting="soft"),
            VotingClassifier([("a", frozen)], voting="hard"),
            StackingClassifier([("a", model)], cv="prefit", final_estimator=LogisticRegression()),
            make_pipeline("passthrough", frozen),
        ]
        fitted = [one.fit(X, Y) for one in around]
        assert "hbtvm" not in model.__class__.__module__ or all(one._repr_html_() for one in fitted)
        parts = [one.predict_proba(X) if hasattr(one, "predict_proba") else one.predict(X) for one in fitted]
        return [*parts, cross_val_predict(frozen, X, Y, cv=3, method="predict_proba")]

    for ours, theirs in zip(results(forest), results(FOREST), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_html_for_notebooks(forest: hbtvm.Model) -> None:
    html = forest._repr_html_()
    for text in ("RandomForestClassifier", "age, income", "0, 1, 2", "per row", "kernels"):
        assert text in html
    assert "&lt;b&gt;tenure&lt;/b&gt;" in html
    assert "<b>tenure" not in html


def test_labels_that_are_texts() -> None:
    theirs = LogisticRegression().fit(X, NAMES)
    ours = hbtvm.compile(theirs, batch_sizes=100, threads=1)
    assert ours.score(X, NAMES) == theirs.score(X, NAMES)
    html = ours._repr_html_()
    assert "high, low, mid" in html
    scorer = get_scorer("roc_auc_ovo")
    assert scorer(ours, X, NAMES) == pytest.approx(scorer(theirs, X, NAMES))
