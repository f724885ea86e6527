"""Models that skl2onnx and onnxmltools convert, against ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as Floats
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import (
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)  # fmt: skip
from sklearn.datasets import make_classification

from hbtvm.operators.base import in_order
from tests.frontends.onnx.oracle import check

X, Y = make_classification(120, 5, n_informative=5, n_redundant=0, n_classes=3, random_state=1)
X = X.astype(np.float32)
TWO = (Y > 0).astype(int)
VERSIONS = {"": 18, "ai.onnx.ml": 3}


def converted(estimator: Any, rows: Any = X, target: Any = None, types: Any = None, **options: Any) -> Any:
    """A fitted estimator as ONNX."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(rows) if target is None else estimator.fit(rows, target)
        types = types or [("X", FloatTensorType([None, rows.shape[1]]))]
        return convert_sklearn(
            estimator, initial_types=types, target_opset=VERSIONS,
            options={id(estimator): options} if options else None,
        )  # fmt: skip


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "tree": tree.DecisionTreeClassifier,
    "forest": lambda: ensemble.RandomForestClassifier(5, random_state=0),
    "gradient_boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=3),
    "logistic": linear_model.LogisticRegression,
    "sgd": lambda: linear_model.SGDClassifier(random_state=0),
    "sgd_log": lambda: linear_model.SGDClassifier(loss="log_loss", random_state=0),
    "ridge": linear_model.RidgeClassifier,
    "perceptron": linear_model.Perceptron,
    "linear_svc": svm.LinearSVC,
    "svc": svm.SVC,
    "nu_svc": lambda: svm.NuSVC(kernel="poly", nu=0.2),
    "gaussian_nb": naive_bayes.GaussianNB,
    "bernoulli_nb": naive_bayes.BernoulliNB,
    "neighbors": lambda: neighbors.KNeighborsClassifier(3),
    "neighbors_p": lambda: neighbors.KNeighborsClassifier(3, p=1, weights="distance"),
    "mlp": lambda: neural_network.MLPClassifier((6,), max_iter=20, random_state=0),
    "lda": discriminant_analysis.LinearDiscriminantAnalysis,
    "qda": discriminant_analysis.QuadraticDiscriminantAnalysis,
    "ada": lambda: ensemble.AdaBoostClassifier(n_estimators=3),
    "bagging": lambda: ensemble.BaggingClassifier(n_estimators=3, random_state=0),
    "stacking": lambda: ensemble.StackingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))]
    ),
    "calibrated": lambda: calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2),
    "one_vs_rest": lambda: multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    "one_vs_one": lambda: multiclass.OneVsOneClassifier(linear_model.LogisticRegression()),
}


@pytest.mark.parametrize("target", [TWO, Y], ids=["two", "three"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str, target: np.ndarray) -> None:
    graph = check(converted(CLASSIFIERS[name](), X, target), X)
    assert graph.output.kind == "classifier" and "proba" in graph.output.outputs
    if name in ("tree", "forest", "gradient_boosting"):
        assert type(graph.anchor).__name__ == "TreeEnsemble" and not graph.feeds


@pytest.mark.parametrize("target", [TWO, Y], ids=["two", "three"])
def test_classes_of_many_trees_are_few_operators(target: np.ndarray) -> None:
    """AdaBoost asks each tree for its class: a reduction for each took minutes to compile."""
    graph = check(converted(ensemble.AdaBoostClassifier(n_estimators=30, random_state=0), X, target), X)
    reductions = [node for node in in_order(graph.anchor.output) if node.kind == "reduce"]
    assert len(reductions) < 5


REGRESSORS: dict[str, Callable[[], Any]] = {
    "forest": lambda: ensemble.RandomForestRegressor(5, random_state=0),
    "gradient_boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=3),
    "linear": linear_model.LinearRegression,
    "poisson": linear_model.PoissonRegressor,
    "svr": svm.SVR,
    "mlp": lambda: neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, random_state=0),
    "neighbors": lambda: neighbors.KNeighborsRegressor(3, weights="distance"),
    "ada": lambda: ensemble.AdaBoostRegressor(n_estimators=3, random_state=0),
    "voting": lambda: ensemble.VotingRegressor(
        [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3))]
    ),
    "gaussian_process": gaussian_process.GaussianProcessRegressor,
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name: str) -> None:
    check(converted(REGRESSORS[name](), X, np.abs(X[:, 0]) + Y), X)


def test_several_targets() -> None:
    target = np.c_[X[:, 0], X[:, 1] ** 2]
    check(converted(neighbors.KNeighborsRegressor(3), X, target), X)
    check(converted(ensemble.RandomForestRegressor(3), X, target), X)
    check(converted(linear_model.Ridge(), X, target), X)


def test_clusters_and_outliers() -> None:
    graph = check(converted(cluster.KMeans(3, random_state=0), X), X)
    assert graph.output.kind == "clusterer"
    check(converted(mixture.GaussianMixture(n_components=2, random_state=0), X), X)
    for one in (
        ensemble.IsolationForest(n_estimators=3, random_state=0),
        svm.OneClassSVM(),
        neighbors.LocalOutlierFactor(5, novelty=True),
    ):
        assert check(converted(one, X), X).output.kind == "anomaly"


@pytest.mark.parametrize(
    "estimator",
    [
        preprocessing.StandardScaler(), preprocessing.MinMaxScaler(clip=True), preprocessing.Normalizer(),
        preprocessing.KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
        preprocessing.PolynomialFeatures(2), preprocessing.PowerTransformer(), impute.SimpleImputer(),
        decomposition.PCA(2), decomposition.TruncatedSVD(2), decomposition.KernelPCA(2),
        feature_selection.VarianceThreshold(),
        ensemble.RandomTreesEmbedding(4, max_depth=3, sparse_output=False, random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_transformers(estimator: Any) -> None:
    rows = X.copy()
    if isinstance(estimator, impute.SimpleImputer):
        rows[::7, 1] = np.nan
    check(converted(estimator, rows), rows)


@pytest.mark.parametrize("target", [TWO, Y], ids=["two", "three"])
def test_boosters(target: np.ndarray) -> None:
    types = [("X", Floats([None, 5]))]
    rows = X.copy()
    rows[::9, 2] = np.nan
    boosted = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(rows, target)
    found = check(convert_xgboost(boosted, initial_types=types, target_opset=15), rows)
    assert type(found.anchor).__name__ == "TreeEnsemble"
    light = lightgbm.LGBMClassifier(n_estimators=4, min_child_samples=3, verbose=-1).fit(rows, target)
    for zipmap in (False, True):
        model = convert_lightgbm(light, initial_types=types, target_opset=15, zipmap=zipmap)
        assert type(check(model, rows).anchor).__name__ == "TreeEnsemble"


def test_boosters_of_numbers_and_categories() -> None:
    types = [("X", Floats([None, 5]))]
    rows = X.copy()
    rows[:, 0] = np.random.default_rng(0).integers(0, 12, len(X))
    target = np.abs(X[:, 1]) + rows[:, 0] % 3
    boosted = xgboost.XGBRegressor(n_estimators=4, objective="count:poisson").fit(rows, target)
    check(convert_xgboost(boosted, initial_types=types, target_opset=15), rows)
    light = lightgbm.LGBMRegressor(
        n_estimators=8, min_child_samples=2, min_data_per_group=2, cat_smooth=1, verbose=-1
    ).fit(rows, target, categorical_feature=[0])
    model = convert_lightgbm(light, initial_types=types, target_opset=15)
    others = rows.copy()
    others[:20, 0] = np.linspace(-1, 13, 20)
    for one in (rows, others):
        check(model, one, anchor="TreeEnsemble")


FRAME = pd.DataFrame(
    {
        "age": np.random.default_rng(1).normal(40, 10, 200).astype(np.float32),
        "hours": np.random.default_rng(2).normal(size=200).astype(np.float32),
        "job": np.random.default_rng(3).choice(["a", "b", "ccc"], 200),
        "sex": np.random.default_rng(4).choice(["m", "f"], 200),
    }
)
LABELS = np.where((FRAME["age"] > 40) ^ (FRAME["job"] == "a"), "yes", "no")
TYPES = [
    *((name, FloatTensorType([None, 1])) for name in ("age", "hours")),
    *((name, StringTensorType([None, 1])) for name in ("job", "sex")),
]
NUMBERS, TEXTS = ["age", "hours"], ["job", "sex"]


@pytest.mark.parametrize(
    "last",
    [
        linear_model.LogisticRegression(),
        ensemble.RandomForestClassifier(8, random_state=0),
        ensemble.StackingClassifier(
            [
                ("a", linear_model.LogisticRegression()),
                ("b", ensemble.RandomForestClassifier(4, random_state=0)),
            ]
        ),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize(
    "encoder",
    [preprocessing.OneHotEncoder(handle_unknown="ignore"), preprocessing.OrdinalEncoder()],
    ids=lambda one: type(one).__name__,
)
def test_pipelines_on_frames(encoder: Any, last: Any) -> None:
    frame = FRAME.copy()
    frame.loc[::7, "age"] = np.nan
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    columns = compose.ColumnTransformer([("n", numbers, NUMBERS), ("c", encoder, TEXTS)])
    model = converted(pipeline.make_pipeline(columns, last), frame, LABELS, TYPES)
    graph = check(model, frame)
    assert graph.input.feature_names == ("age", "hours", "job", "sex")
    if isinstance(encoder, preprocessing.OneHotEncoder):
        check(model, frame.assign(job="?")[["sex", "job", "hours", "age"]])


def test_missing_strings_and_selection() -> None:
    frame = FRAME.copy()
    frame.loc[::9, "job"] = ""
    texts = pipeline.make_pipeline(
        impute.SimpleImputer(strategy="most_frequent", missing_values=""), preprocessing.OneHotEncoder()
    )
    columns = compose.ColumnTransformer([("c", texts, TEXTS), ("n", preprocessing.StandardScaler(), NUMBERS)])
    steps = columns, feature_selection.SelectKBest(k=4), linear_model.LogisticRegression()
    check(converted(pipeline.make_pipeline(*steps), frame, LABELS, TYPES), frame)


def test_strings_and_integers_without_names() -> None:
    rows = np.random.default_rng(5).choice(["x", "yy", "z"], (100, 3)).astype(object)
    steps = preprocessing.OneHotEncoder(), tree.DecisionTreeClassifier(random_state=0)
    target = (rows[:, 0] == "x").astype(int)
    types = [("X", StringTensorType([None, 3]))]
    check(converted(pipeline.make_pipeline(*steps), rows, target, types), rows, anchor="TreeEnsemble")
    ints = np.random.default_rng(6).integers(0, 9, (200, 3))
    types = [("X", Int64TensorType([None, 3]))]
    steps = preprocessing.OneHotEncoder(), linear_model.LogisticRegression()
    check(converted(pipeline.make_pipeline(*steps), ints, (ints[:, 0] > 4).astype(int), types), ints)


@pytest.mark.parametrize("scaler", [preprocessing.StandardScaler(), preprocessing.MinMaxScaler()])
def test_forests_behind_scalers(scaler: Any) -> None:
    """ONNX Runtime's own roundings decide, which are not scikit-learn's."""
    rows = np.random.default_rng(7).normal(size=(1500, 4)).astype(np.float32)
    target = (rows[:, 0] + rows[:, 1] > 0).astype(int) + (rows[:, 2] > 1)
    forest = ensemble.RandomForestClassifier(10, random_state=0)
    model = converted(pipeline.make_pipeline(scaler, forest), rows, target)
    check(model, rows, anchor="TreeEnsemble", tolerance=2e-6)
    wide = rows.astype(np.float64)
    types = [("X", DoubleTensorType([None, 4]))]
    check(converted(pipeline.make_pipeline(scaler, forest), wide, target, types), wide, anchor="TreeEnsemble")
