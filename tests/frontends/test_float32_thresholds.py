"""Numbers that float32 does not hold, compared with rows of both types: at them, and at their neighbours."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomTreesEmbedding, VotingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, RegressorChain
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import hbtvm
from hbtvm.frontends import from_object
from hbtvm.graph.passes.in_kernel import in_kernel
from tests.answers import same
from tests.typed_rows import predict, scores_of

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

_RNG = np.random.default_rng(0)
_NUMBERS = np.array([0.1, 0.3, 0.7, 1 / 3])
_BOTH = [np.nextafter(x, x.dtype.type(to)) for x in (_NUMBERS, _NUMBERS.astype("f4")) for to in (-9, 9)]
VALUES = np.concatenate([_NUMBERS, _NUMBERS.astype("f4"), *_BOTH, [0.0, 0.5, 1.0]])
TRAINING = _RNG.choice([*_NUMBERS, 0.05, 0.9], (200, 3)) * _RNG.choice([1.0, 1.001, 0.999], (200, 3))
TRAINING[_RNG.random((200, 3)) < 0.2] = 0.1
TARGET = ((TRAINING[:, 0] > 0.25) ^ (TRAINING[:, 1] > 0.15)).astype(int)
ROWS = _RNG.choice(VALUES, (200, 3))

STEPS: dict[str, Any] = {
    "binarizer": Binarizer(threshold=0.3),
    "binarizer behind a scaler": make_pipeline(MinMaxScaler((0.1, 0.3)), Binarizer(threshold=0.3)),
    "exact": Binarizer(threshold=0.5),
    "imputer": SimpleImputer(missing_values=0.1, strategy="constant", fill_value=0.7),
    "indicator": SimpleImputer(missing_values=0.1, add_indicator=True),
    "neighbours": KNNImputer(missing_values=0.1, n_neighbors=1),
    "rounds": IterativeImputer(missing_values=0.1, max_iter=2),
    "bins": KBinsDiscretizer(3, encode="ordinal", strategy="uniform"),
}
TREE = DecisionTreeClassifier(max_depth=4, random_state=0)


def _around(step: Any) -> list[Any]:
    pipeline = make_pipeline(step, LogisticRegression())
    return [
        pipeline,
        make_pipeline(step, TREE),
        VotingClassifier([("a", pipeline), ("b", LogisticRegression())], voting="soft"),
        VotingClassifier([("a", pipeline), ("b", TREE)], voting="soft"),
        make_pipeline(MinMaxScaler(), VotingClassifier([("a", pipeline), ("b", TREE)], voting="soft")),
    ]


def _without_ties(rows: np.ndarray, seed: int) -> np.ndarray:
    """Rows whose nearest neighbours are certain."""
    other = np.random.default_rng(seed).random(rows.shape).astype(rows.dtype)
    return np.where(rows == rows.dtype.type(0.1), rows, other)


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    training = _without_ties(TRAINING, 1) if name == "neighbours" else TRAINING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = clone(STEPS[name]).fit(training)
        models = [model.fit(training, TARGET) for model in _around(STEPS[name])]
    for dtype in ("float32", "float64"):
        rows = ROWS.astype(dtype)
        rows = _without_ties(rows, 2) if name == "neighbours" else rows
        if name != "bins":
            expected = np.asarray(alone.transform(rows), np.float64)
            np.testing.assert_allclose(scores_of(from_object(alone), rows), expected, 1e-5, 1e-6)
        for model in models:
            same(predict(from_object(model), rows, "proba"), model.predict_proba(rows), 1e-5, 1e-6)


def test_bernoulli() -> None:
    bayes = BernoulliNB(binarize=0.3)
    several = np.c_[TARGET, 1 - TARGET]
    for model, target in (
        (bayes, TARGET),
        (make_pipeline(MinMaxScaler((0.1, 0.3)), bayes), TARGET),
        (VotingClassifier([("a", bayes), ("b", TREE)], voting="soft"), TARGET),
        (MultiOutputClassifier(bayes), several),
        # Its links read float64.
        (ClassifierChain(make_pipeline(Binarizer(threshold=0.3), LogisticRegression())), several),
    ):
        model.fit(TRAINING, target)
        graph = from_object(model)
        for dtype in ("float32", "float64"):
            rows = ROWS.astype(dtype)
            expected = model.predict_proba(rows)
            for one in (graph, in_kernel(graph)):
                same(predict(one, rows, "proba"), expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    "steps",
    [
        [BernoulliNB()],
        [BernoulliNB(binarize=0.3)],
        [Binarizer(), LogisticRegression()],
        [KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"), GaussianNB()],
    ],
    ids=str,
)
@pytest.mark.parametrize("scaler", [StandardScaler(), RobustScaler(), MinMaxScaler((-1, 1))], ids=str)
def test_comparisons_behind_arithmetic(scaler: Any, steps: list[Any]) -> None:
    training = _RNG.normal(size=(80, 3))
    model = make_pipeline(scaler, *steps).fit(training, training.sum(axis=1) > 0)
    edges = [
        np.zeros(3),
        np.full(3, 0.3),
        *np.stack(getattr(model[1], "bin_edges_", [np.zeros(0)] * 3), axis=1),
    ]
    at = model[0].inverse_transform(np.array(edges)).astype(np.float32)
    rows = np.concatenate([at, np.nextafter(at, np.float32(-9)), np.nextafter(at, np.float32(9))])
    for one in (rows, rows.astype(np.float64)):
        graph = in_kernel(from_object(model))
        same(predict(graph, one, "proba"), model.predict_proba(one), 1e-9, 1e-12)


def test_other_networks_serve_both_types() -> None:
    """Only a number that float32 does not hold makes a second network."""
    for threshold, apart in ((0.5, False), (0.3, True)):
        model = make_pipeline(Binarizer(threshold=threshold), BernoulliNB(binarize=0.5)).fit(TRAINING, TARGET)
        assert (from_object(model).single is not None) == apart


def test_rows_of_norms_in_front_of_trees_of_several_targets() -> None:
    """What the host makes of rows, to which no step is done, is no column of the caller's."""
    model = MultiOutputClassifier(make_pipeline(Normalizer(), TREE)).fit(TRAINING, np.c_[TARGET, TARGET])
    same(predict(from_object(model), ROWS[:50]), model.predict(ROWS[:50]), 0, 0)


def test_compiled() -> None:
    pipeline = make_pipeline(Binarizer(threshold=0.3), LogisticRegression())
    model = VotingClassifier([("a", pipeline), ("b", TREE)], voting="soft").fit(TRAINING, TARGET)
    bayes = BernoulliNB(binarize=0.3).fit(TRAINING, TARGET)
    for one in (model, bayes):
        compiled = hbtvm.compile(one, batch_sizes=64, threads=1)
        for dtype in ("float32", "float64"):
            rows = ROWS.astype(dtype)
            same(compiled.predict_proba(rows), one.predict_proba(rows), 1e-5, 1e-6)


@pytest.mark.parametrize("scaler", [StandardScaler(), RobustScaler()], ids=str)
def test_chains_behind_arithmetic(scaler: Any) -> None:
    """A link's trees compare rounded rows beside what the link before predicts, which is not rounded."""
    # Whole numbers have values on thresholds.
    training = np.random.default_rng(1).integers(-6, 10, (60, 3)).astype(np.float64)
    target = np.c_[training.sum(axis=1), training[:, 0] ** 2]
    link = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=4, random_state=0))
    model = make_pipeline(scaler, RegressorChain(link)).fit(training, target)
    compiled = hbtvm.compile(model, batch_sizes=64, threads=1)
    tree = model[1].estimators_[0][1].tree_
    at = np.repeat(training, 2, axis=0)
    scaled = np.zeros((len(tree.feature), 3))
    scaled[np.arange(len(scaled)), tree.feature] = tree.threshold
    inner = model[1].estimators_[0][0].inverse_transform(scaled)
    edges = model[0].inverse_transform(inner).astype(np.float32)
    near = [edges, np.nextafter(edges, np.float32(-99)), np.nextafter(edges, np.float32(99))]
    rows = np.concatenate([at.astype(np.float32), *near])
    for dtype in ("float32", "float64"):
        expected = model.predict(rows.astype(dtype))
        same(compiled.predict(rows.astype(dtype)), expected, 1e-5, 1e-5)


def test_encoders_in_front_of_embeddings() -> None:
    """Kernels for both types of rows read the same feeds, each with encoders of its own."""
    rng = np.random.default_rng(0)
    names, words = [f"s{i}" for i in range(10)], list("stuvwxyz")
    X = pd.DataFrame({"a": rng.normal(size=200), **{name: rng.choice(words, 200) for name in names}})
    encoder = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(drop="first", handle_unknown="ignore")
    )
    columns = make_column_transformer((StandardScaler(), ["a"]), (encoder, names), sparse_threshold=0)
    embedding = RandomTreesEmbedding(6, max_depth=3, sparse_output=False, random_state=0)
    trees = GradientBoostingClassifier(n_estimators=20, random_state=0)
    model = make_pipeline(columns, make_union(FunctionTransformer(), embedding), trees)
    model.fit(X, rng.integers(0, 3, 200))
    compiled = hbtvm.compile(model, batch_sizes=100, dtype="float64")
    np.testing.assert_allclose(compiled.predict_proba(X), model.predict_proba(X), rtol=1e-12)
