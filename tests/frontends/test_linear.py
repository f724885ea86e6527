"""scikit-learn's linear models against scikit-learn itself."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn import linear_model as lm
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from hbtvm import codec
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object, registry
from hbtvm.frontends.pickles.live import from_live
from hbtvm.frontends.sklearn.linear import CLASSIFIERS, GENERALISED, REGRESSORS
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Linear
from hbtvm.graph.outputs.output import OutputSpec
from tests.models import data, targets

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

ZOO: dict[str, tuple[Callable[[], Any], str]] = {
    "ols": (lm.LinearRegression, "real"),
    "ols_pair": (lm.LinearRegression, "pair"),
    "ols_column": (lm.LinearRegression, "column"),
    "ridge": (lm.Ridge, "real"),
    "ridge_pair": (lambda: lm.Ridge(fit_intercept=False), "pair"),
    "ridge_cv": (lm.RidgeCV, "real"),
    "lasso": (lambda: lm.Lasso(0.3), "real"),
    "lasso_cv": (lambda: lm.LassoCV(cv=2), "real"),
    "net": (lm.ElasticNet, "pair"),
    "net_cv": (lambda: lm.ElasticNetCV(cv=2), "real"),
    "multi_lasso": (lm.MultiTaskLasso, "pair"),
    "multi_lasso_cv": (lambda: lm.MultiTaskLassoCV(cv=2), "pair"),
    "multi_net": (lm.MultiTaskElasticNet, "pair"),
    "multi_net_cv": (lambda: lm.MultiTaskElasticNetCV(cv=2), "pair"),
    "lars": (lm.Lars, "real"),
    "lars_cv": (lambda: lm.LarsCV(cv=2), "real"),
    "lasso_lars": (lambda: lm.LassoLars(0.01), "pair"),
    "lasso_lars_cv": (lambda: lm.LassoLarsCV(cv=2), "real"),
    "lasso_lars_ic": (lm.LassoLarsIC, "real"),
    "omp": (lm.OrthogonalMatchingPursuit, "real"),
    "omp_cv": (lambda: lm.OrthogonalMatchingPursuitCV(cv=2), "real"),
    "bayes": (lm.BayesianRidge, "real"),
    "ard": (lm.ARDRegression, "real"),
    "huber": (lm.HuberRegressor, "real"),
    "theil": (lambda: lm.TheilSenRegressor(random_state=1, max_subpopulation=50), "real"),
    "ransac": (lambda: lm.RANSACRegressor(random_state=1), "real"),
    "ransac_huber": (lambda: lm.RANSACRegressor(lm.HuberRegressor(), min_samples=50, random_state=1), "real"),
    "sgd_real": (lambda: lm.SGDRegressor(random_state=1), "real"),
    "svr": (lambda: LinearSVR(random_state=1), "real"),
    "svr_plain": (lambda: LinearSVR(random_state=1, fit_intercept=False), "real"),
    "pa_real": (lambda: lm.PassiveAggressiveRegressor(random_state=1), "real"),
    "quantile": (lambda: lm.QuantileRegressor(alpha=0.01), "real"),
    "poisson": (lm.PoissonRegressor, "positive"),
    "gamma": (lm.GammaRegressor, "positive"),
    "tweedie": (lambda: lm.TweedieRegressor(power=1.5), "positive"),
    "tweedie_zero": (lambda: lm.TweedieRegressor(power=0), "real"),
    "tweedie_identity": (lambda: lm.TweedieRegressor(power=1, link="identity"), "positive"),
    "tweedie_log": (lambda: lm.TweedieRegressor(power=0, link="log"), "positive"),
    "logistic_two": (lm.LogisticRegression, "yes_no"),
    "logistic_three": (lm.LogisticRegression, "names"),
    "logistic_floats": (lambda: lm.LogisticRegression(C=0.1, fit_intercept=False), "floats"),
    "logistic_liblinear": (lambda: lm.LogisticRegression(solver="liblinear"), "two"),
    "logistic_l1": (lambda: lm.LogisticRegression(solver="liblinear", l1_ratio=1, C=0.05), "objects"),
    "logistic_cv": (lambda: lm.LogisticRegressionCV(cv=2, Cs=2), "names"),
    "sgd_two": (lambda: lm.SGDClassifier(random_state=1), "yes_no"),
    "sgd_log_two": (lambda: lm.SGDClassifier(loss="log_loss", random_state=1), "yes_no"),
    "sgd_log_three": (lambda: lm.SGDClassifier(loss="log_loss", random_state=1), "names"),
    "sgd_modified_two": (lambda: lm.SGDClassifier(loss="modified_huber", random_state=1), "two"),
    "sgd_modified_three": (lambda: lm.SGDClassifier(loss="modified_huber", random_state=1), "names"),
    "perceptron": (lambda: lm.Perceptron(random_state=1), "names"),
    "pa_three": (lambda: lm.PassiveAggressiveClassifier(random_state=1), "names"),
    "ridge_two": (lm.RidgeClassifier, "yes_no"),
    "ridge_three": (lambda: lm.RidgeClassifier(fit_intercept=False), "three"),
    "ridge_flags": (lm.RidgeClassifier, "flags"),
    "ridge_cv_three": (lm.RidgeClassifierCV, "names"),
    "ridge_cv_flags": (lm.RidgeClassifierCV, "flags"),
    "svc_two": (lambda: LinearSVC(random_state=1), "yes_no"),
    "svc_three": (lambda: LinearSVC(random_state=1), "names"),
    "svc_singer": (lambda: LinearSVC(random_state=1, multi_class="crammer_singer"), "two"),
}
METHODS = {"proba": "predict_proba", "decision": "decision_function"}


@functools.cache
def trained(name: str) -> Any:
    make, kind = ZOO[name]
    y = targets("real")[:, None] if kind == "column" else targets(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(data()[0], y)


def raw(graph: Graph, X: np.ndarray) -> np.ndarray:
    assert isinstance(graph.anchor, Linear)
    return graph.anchor.reference(X)


def assert_same(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


def assert_same_as_library(model: Any, graph: Graph, X: np.ndarray) -> None:
    scores, output = raw(graph, X), graph.output
    assert_same(output.compute(None, scores), model.predict(X))
    for name, method in METHODS.items():
        if name in output.outputs:
            assert_same(output.compute(name, scores), getattr(model, method)(X))
        else:
            assert not hasattr(model, method), method


def test_every_class_is_tried() -> None:
    kinds = {type(trained(name)).__name__ for name in ZOO}
    assert kinds == {*REGRESSORS, *GENERALISED, *CLASSIFIERS, "RANSACRegressor"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ZOO)
def test_predicts_as_scikit_learn(name: str, dtype: str) -> None:
    model = trained(name)
    graph = from_object(model)
    assert (graph.library, graph.model) == ("scikit-learn", type(model).__name__)
    assert not graph.input.allow_nan
    # Scores of all signs and sizes.
    X = (data()[0] * np.geomspace(0.1, 30, 240)[:, None]).astype(dtype)
    if type(model).__name__ in GENERALISED:
        X = data()[0].astype(dtype)
    assert_same_as_library(model, graph, X)
    assert_same_as_library(model, graph, X[:1])
    assert codec.write(codec.read(OutputSpec, codec.write(graph.output))) == codec.write(graph.output)


def test_probabilities_of_hopeless_rows_are_equal_shares() -> None:
    model = trained("sgd_modified_three")
    X = data()[0] * 1e3
    expected = model.predict_proba(X)
    hopeless = np.all(expected == 1 / 3, axis=1)
    assert hopeless.any()
    assert not hopeless.all()
    graph = from_object(model)
    assert_same(graph.output.compute("proba", raw(graph, X)), expected)


@pytest.mark.parametrize(
    ("way", "solver", "kind", "expected"),
    [
        ("ovr", "lbfgs", "two", lambda s: expit(s[:, 0])),
        ("auto", "lbfgs", "two", lambda s: expit(s[:, 0])),
        ("multinomial", "lbfgs", "two", lambda s: np.exp(s[:, 0]) / (np.exp(s[:, 0]) + np.exp(-s[:, 0]))),
        ("ovr", "lbfgs", "three", lambda s: expit(s) / expit(s).sum(1, keepdims=True)),
        ("warn", "liblinear", "three", lambda s: expit(s) / expit(s).sum(1, keepdims=True)),
        ("auto", "liblinear", "three", lambda s: expit(s) / expit(s).sum(1, keepdims=True)),
        ("deprecated", "lbfgs", "three", lambda s: np.exp(s) / np.exp(s).sum(1, keepdims=True)),
        ("multinomial", "lbfgs", "three", lambda s: np.exp(s) / np.exp(s).sum(1, keepdims=True)),
    ],
)
def test_older_releases_of_logistic_regression(way: str, solver: str, kind: str, expected: Any) -> None:
    model = copy.deepcopy(trained("logistic_two" if kind == "two" else "logistic_three"))
    model.multi_class, model.solver = way, solver
    record = from_live(model)
    record.attributes["_sklearn_version"] = "1.4.2"
    graph = registry.read(record)
    scores = raw(graph, data()[0])
    proba, wanted = graph.output.compute("proba", scores), expected(scores)
    assert_same(proba[:, 1] if wanted.ndim == 1 else proba, wanted)
    # Releases without the parameter ignore it.
    proba = expit(scores[:, 0]) if kind == "two" else np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert_same(
        from_object(model).output.compute("proba", scores)[:, -1], (proba if kind == "two" else proba[:, -1])
    )


def test_sparse_coefficients() -> None:
    model = copy.deepcopy(trained("logistic_l1"))
    before = from_object(model).anchor
    model.sparsify()
    assert model.coef_.nnz < 4
    graph = from_object(model)
    np.testing.assert_array_equal(graph.anchor.sums.weight, before.sums.weight)
    assert_same_as_library(model, graph, data()[0])
    content = io.BytesIO(pickle.dumps(model))
    np.testing.assert_array_equal(from_object(pickle.load(content)).anchor.sums.weight, before.sums.weight)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: setattr(m, "coef_", m.coef_[:, :2]), "coefficients of 2 columns, but 4"),
        (lambda m: setattr(m, "coef_", m.coef_ * np.nan), "a coefficient is not finite"),
        (lambda m: setattr(m, "coef_", "big"), "expected other values"),
        (lambda m: setattr(m, "intercept_", np.zeros(5)), r"its intercept \(5,\)"),
        (lambda m: setattr(m, "classes_", m.classes_[:2]), "3 scores for 2 classes"),
    ],
)
def test_damaged_models_are_refused(change: Callable[[Any], None], told: str) -> None:
    model = copy.deepcopy(trained("logistic_three"))
    change(model)
    with pytest.raises(ModelError, match=told):
        from_object(model)


def test_damaged_sparse_coefficients_are_refused() -> None:
    model = copy.deepcopy(trained("logistic_l1"))
    model.sparsify()
    for name, value in (("indices", [9] * model.coef_.nnz), ("_shape", (1 << 40, 4)), ("indptr", [0, 99])):
        broken = copy.deepcopy(model)
        known = getattr(broken.coef_, name)
        broken.coef_.__dict__[name] = np.array(value, known.dtype) if name != "_shape" else value
        with pytest.raises(ModelError, match="coef_"):
            from_object(broken)


def test_what_is_no_linear_model_within_is_refused() -> None:
    model = lm.RANSACRegressor(DecisionTreeRegressor(max_depth=2), min_samples=20, random_state=1)
    model.fit(data()[0], targets("real"))
    with pytest.raises(UnsupportedModel, match="has a DecisionTreeRegressor as its estimator_"):
        from_object(model)
    with pytest.raises(UnsupportedModel, match="not fitted"):
        from_object(lm.Ridge())


@pytest.mark.parametrize("name", ["logistic_two", "logistic_three", "ols_column", "ridge_flags", "poisson"])
def test_compiled_models_predict_as_scikit_learn(name: str, tmp_path: Any) -> None:
    model = trained(name)
    compiled = hbtvm.compile(model, batch_sizes=(1, 100), threads=1)
    compiled.save(tmp_path / "model.tar")
    loaded = hbtvm.load(tmp_path / "model.tar")
    told = " ".join(loaded.summary().split())
    # Of several classes, labels and probabilities are computed with the scores.
    assert (
        "1 linear_sum" if name in ("logistic_three", "ridge_flags") else "linear 4 weighted numbers"
    ) in told
    assert ("operators" if name in ("logistic_three", "ridge_flags") else "linear") in repr(loaded)
    for dtype in ("float32", "float64"):
        X = data()[0].astype(dtype)
        for rows in (X, X[:1], X[:33]):
            for own in (compiled, loaded):
                assert_same(own.predict(rows), model.predict(rows))
                for method in METHODS.values():
                    if hasattr(model, method):
                        assert_same(getattr(own, method)(rows), getattr(model, method)(rows))


@pytest.mark.parametrize("name", ["logistic_two", "logistic_three", "lasso"])
def test_what_the_library_refuses_is_refused(name: str) -> None:
    model = copy.deepcopy(trained(name))
    # NaN of a column without weight, too; of many columns, as one of two rows of weights is not read.
    model.coef_[..., 2] = 0
    if name == "lasso":
        model.coef_[:] = [0, 1, 0, 0]
    compiled = hbtvm.compile(model, batch_sizes=(1, 100), threads=1)
    for dtype in ("float32", "float64"):
        for bad, told in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
            X = data()[0].astype(dtype)
            X[70, 2] = bad
            for rows, place in ((X, 70), (X[70:71], 0), (X[60:72], 10)):
                with pytest.raises(InputError, match=f"{told}.*") as error:
                    compiled.predict(rows)
                assert f"row {place}" in str(error.value)
    # What is finite is no error, even if scores are not.
    X = np.full((3, 4), 1e308)
    model.coef_[..., 1] = 1e3
    huge = hbtvm.compile(model, batch_sizes=(1, 100), threads=1)
    with np.errstate(all="ignore"):
        scores = model.predict(X) if name == "lasso" else model.decision_function(X)
        assert not np.isfinite(scores).all()
        for rows in (X, X[:1]):
            np.testing.assert_array_equal(huge.predict(rows), model.predict(rows))
