"""Which scalers stay in front of trees as arithmetic for kernels, which is theirs to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import ensemble, preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline

from hbtvm.frontends.files import from_object
from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.steps import Arithmetic, Cast, Clip, Fill, Step
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.complement import keep_second
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import UNCHANGED, Prologue, arithmetic_of

SPECIAL = np.array(
    [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, -1e-310, 1.7e308, -1.7e308, 1e39, 3.4028235e38, 1e-45]
)
SCALERS: dict[str, Any] = {
    "standard": preprocessing.StandardScaler,
    "mean": lambda: preprocessing.StandardScaler(with_std=False),
    "scale": lambda: preprocessing.StandardScaler(with_mean=False),
    "robust": preprocessing.RobustScaler,
    "min_max": preprocessing.MinMaxScaler,
    "max_abs": preprocessing.MaxAbsScaler,
    "imputed": lambda: make_pipeline(SimpleImputer(), preprocessing.StandardScaler()),
    "imputed afterwards": lambda: make_pipeline(preprocessing.RobustScaler(), SimpleImputer()),
    "marked": lambda: make_pipeline(SimpleImputer(add_indicator=True), preprocessing.StandardScaler()),
    "two": lambda: make_pipeline(preprocessing.StandardScaler(), preprocessing.MinMaxScaler()),
}
OTHERS: dict[str, Any] = {
    "clipped": lambda: preprocessing.MinMaxScaler(clip=True),
    "in another order": lambda: make_pipeline(
        preprocessing.MinMaxScaler(), preprocessing.StandardScaler(), preprocessing.RobustScaler()
    ),
    "in two ways": lambda: FeatureUnion(
        [("one", preprocessing.StandardScaler()), ("other", preprocessing.MinMaxScaler())]
    ),
    "functions": lambda: make_pipeline(
        preprocessing.FunctionTransformer(np.cbrt), preprocessing.StandardScaler()
    ),
}


def data(rows: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows, 4)) * [1, 40, 1e-3, 1e6] + [0, 100, 5, -1e7]
    return X, np.round(X[:, 0] + X[:, 1] / 40 + np.sin(X[:, 2] * 300), 1)


def graph_of(scaler: Any, **more: Any) -> tuple[Graph, Pipeline]:
    X, y = data()
    if "impute" in str(scaler) or "Impute" in str(scaler):
        X[::7, :2] = np.nan
    forest = ensemble.RandomForestRegressor(4, random_state=0, **more)
    pipeline = make_pipeline(scaler, forest).fit(X, y)
    return from_object(pipeline), pipeline


@pytest.mark.parametrize("name", SCALERS)
def test_prologues_compute_what_the_scaler_does(name: str) -> None:
    graph, pipeline = graph_of(SCALERS[name]())
    assert graph.scaled is not None and isinstance(graph.anchor, TreeEnsemble)
    assert graph.scaled.ensemble.compare_dtype == "float32" and graph.anchor.compare_dtype == "float64"
    used = [feed.source.index for feed in graph.feeds]  # type: ignore[union-attr]
    assert sorted(used) == [0, 1, 2, 3]
    rng = np.random.default_rng(0)
    X = np.concatenate([data()[0], rng.choice(SPECIAL[np.abs(SPECIAL) < 1e300], (200, 4))])
    with np.errstate(over="ignore"):
        expected = pipeline[:-1].transform(X)[:, :4].astype(np.float32)
    np.testing.assert_array_equal(graph.scaled.prologue.reference(X[:, used]), expected[:, used])


@pytest.mark.parametrize("name", OTHERS)
def test_other_chains_are_moved_into_thresholds_only(name: str) -> None:
    graph, _ = graph_of(OTHERS[name]())
    assert graph.scaled is None and graph.single is not None


def test_trees_that_compare_in_float64_need_none() -> None:
    X, y = data()
    model = make_pipeline(preprocessing.StandardScaler(), ensemble.HistGradientBoostingRegressor(max_iter=3))
    assert from_object(model.fit(X, y)).scaled is None
    bare = make_pipeline("passthrough", ensemble.RandomForestRegressor(2)).fit(X, y)
    assert from_object(bare).scaled is None


def test_codes_beside_numbers_stay_as_they_are() -> None:
    X, y = data()
    X[:, 0] = np.arange(len(X)) % 5
    columns = ColumnTransformer(
        [("a", preprocessing.OneHotEncoder(), [0]), ("b", preprocessing.StandardScaler(), [1, 2, 3])]
    )
    y = y + 50 * (X[:, 0] == 2)
    graph = from_object(make_pipeline(columns, ensemble.RandomForestRegressor(3, random_state=0)).fit(X, y))
    assert graph.scaled is not None
    coded = [at for at, feed in enumerate(graph.feeds) if feed.encoder is not None]
    assert coded
    np.testing.assert_array_equal(graph.scaled.prologue.constants[:, coded].T, [UNCHANGED] * len(coded))
    assert graph.scaled.prologue.operations == ("subtract", "divide")
    assert "for float64 rows, kernels for CPUs compute the scalers of 3 columns" in graph.rewrites


def test_what_a_column_lacks_changes_no_number() -> None:
    """Not even in float64, but for the sign of zero."""
    with np.errstate(over="ignore"):
        expected = SPECIAL.astype(np.float32)
    got = Prologue.of([UNCHANGED]).reference(SPECIAL[:, None])[:, 0]
    np.testing.assert_array_equal(got, expected)
    shift, divisor, factor, offset = UNCHANGED
    np.testing.assert_array_equal((SPECIAL - shift) / divisor * factor + offset, SPECIAL)


def test_constants_of_steps() -> None:
    half = Arithmetic("subtract", 0.5), Arithmetic("divide", 3.0, True)
    more = Arithmetic("multiply", 0.1), Arithmetic("add", -7.0)
    assert arithmetic_of(()) == UNCHANGED
    assert arithmetic_of((Fill(1.0), Cast("float64"), *half)) == (0.5, 3.0, 1.0, 0.0)
    assert arithmetic_of((*half, *more)) == (0.5, 3.0, 0.1, -7.0)
    refused: list[tuple[Step, ...]] = [
        (half[1], half[0]),
        (half[0], half[0]),
        (Arithmetic("divide", -1.0),),
        (Arithmetic("multiply", 0.0),),
        (Arithmetic("add", np.inf),),
        (*half, Clip(0, 1)),
        (Cast("float32"), *half),
    ]
    for steps in refused:
        assert arithmetic_of(steps) is None
    x = np.random.default_rng(0).normal(size=(1000, 1))
    found = arithmetic_of((*half, *more))
    assert found is not None
    np.testing.assert_array_equal(
        Prologue.of([found]).reference(x), of_numbers((*half, *more, Cast("float32")), x)
    )


def test_trees_behind_prologues_lose_the_first_of_two_classes() -> None:
    X, y = data()
    model = make_pipeline(preprocessing.StandardScaler(), ensemble.RandomForestClassifier(3, random_state=0))
    graph = from_object(model.fit(X, y > 2))
    kept = keep_second(graph, exact=False)
    assert graph.scaled is not None and kept.scaled is not None
    assert (graph.scaled.ensemble.n_outputs, kept.scaled.ensemble.n_outputs) == (2, 1)
    assert kept.scaled.prologue is graph.scaled.prologue
