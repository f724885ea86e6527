"""Pipelines as one network: what is moved into products, what is read, and the library's own answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Network
from tests.answers import same
from tests.staged import outputs_of

N, WIDTH = 200, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, WIDTH)) * [1, 3, 0.2, 10, 1, 1] + [0, 5, 1, -100, 0, 2]
Y = (X[:, 0] + X[:, 1] * X[:, 2] + RNG.normal(size=N) > 5).astype(int) + (X[:, 4] > 1)
NEW = X[::-1] * 1.1

bins = KBinsDiscretizer(4, strategy="uniform")
union = FeatureUnion([("pca", PCA(3)), ("scale", StandardScaler()), ("more", PCA(2, whiten=True))])
PIPELINES: dict[str, Any] = {
    "polynomials": (StandardScaler(), PolynomialFeatures(2), LogisticRegression(max_iter=500)),
    "few polynomials": (PolynomialFeatures(3), SelectKBest(k=4), StandardScaler(), LinearRegression()),
    "sparse weights": (StandardScaler(), PolynomialFeatures(2), Lasso(0.05)),
    "bins": (KBinsDiscretizer(4, strategy="uniform"), LogisticRegression()),
    "bins beside": (
        ColumnTransformer([("b", bins, [1, 4]), ("s", StandardScaler(), [0, 3])], remainder="passthrough"),
        LinearRegression(),
    ),
    "quantiles": (QuantileTransformer(n_quantiles=30), PCA(3), LogisticRegression()),
    "powers": (StandardScaler(), PowerTransformer(), LinearRegression()),
    "splines": (SplineTransformer(), LinearRegression()),
    "projections": (StandardScaler(), PCA(4, whiten=True), StandardScaler(), LogisticRegression()),
    "union": (StandardScaler(), union, LogisticRegression()),
    "normalized": (Normalizer(), PCA(3), LinearRegression()),
    "centres": (QuantileTransformer(n_quantiles=20), KMeans(4, n_init=1, random_state=0)),
    "normalized centres": (StandardScaler(), Normalizer("l1"), KMeans(3, n_init=1, random_state=0)),
}


def fitted(name: str) -> tuple[Any, Graph, set[str]]:
    model = make_pipeline(*PIPELINES[name]).fit(X, Y)
    graph = from_object(model)
    assert isinstance(graph.anchor, Network) and not graph.stages
    return model, graph, {node.kind for node in graph.anchor.nodes}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_as_networks(name: str) -> None:
    model, graph, _ = fitted(name)
    found = outputs_of(graph, NEW)
    same(found[None], model.predict(NEW), 1e-8, 1e-8)
    if "proba" in found:
        same(found["proba"], model.predict_proba(NEW), 1e-8, 1e-8)
    assert not any(feed.steps for feed in graph.feeds)


@pytest.mark.parametrize("name", ["projections", "union"])
def test_projections_and_linear_models_are_one_sum(name: str) -> None:
    _, graph, kinds = fitted(name)
    assert isinstance(graph.anchor, Network)
    assert "contract" not in kinds
    assert sum(node.kind == "linear_sum" for node in graph.anchor.nodes) == 1


def test_bins_of_a_linear_model_are_sums_of_entries() -> None:
    _, _, kinds = fitted("bins")
    assert "linear_sum" in kinds and not kinds & {"one_hot", "contract"}


@pytest.mark.parametrize("name", ["few polynomials", "sparse weights"])
def test_only_products_that_are_read_are_computed(name: str) -> None:
    model, graph, _ = fitted(name)
    assert isinstance(graph.anchor, Network)
    (monomials,) = [node for node in graph.anchor.nodes if node.kind == "monomials"]
    read = 4 if name == "few polynomials" else np.count_nonzero(model[-1].coef_)
    assert monomials.width <= read


def test_columns_that_no_product_needs_are_not_fed() -> None:
    x = np.concatenate([X, RNG.normal(size=(N, 20))], axis=1)
    target = X[:, 0] * X[:, 1] + X[:, 4] ** 2
    model = make_pipeline(PolynomialFeatures(2), SelectKBest(k=3), LinearRegression()).fit(x, target)
    graph = from_object(model)
    powers = model[0].powers_[model[1].get_support()]
    assert {feed.source.index for feed in graph.feeds} == set(np.flatnonzero(powers.any(axis=0)).tolist())  # type: ignore[union-attr]
    same(outputs_of(graph, x)[None], model.predict(x), 1e-9, 1e-9)


@pytest.mark.parametrize(
    "steps", [(PolynomialFeatures(2),), (StandardScaler(), PCA(3)), (SplineTransformer(),)]
)
def test_forests_behind_networks(steps: tuple[Any, ...]) -> None:
    model = make_pipeline(*steps, RandomForestClassifier(5, random_state=0)).fit(X, Y)
    graph = from_object(model)
    assert len(graph.stages) == 1
    same(outputs_of(graph, X)["proba"], model.predict_proba(X), 1e-9, 1e-9)


def test_forests_behind_columns_of_networks_and_others() -> None:
    both = ColumnTransformer([("p", PolynomialFeatures(2), [0, 1]), ("i", StandardScaler(), [2, 3])])
    model = make_pipeline(both, RandomForestRegressor(5, random_state=0)).fit(X, Y)
    graph = from_object(model)
    same(outputs_of(graph, X)[None], model.predict(X), 1e-9, 1e-9)


def test_categories_beside_polynomials() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.array(["x", "y", "z"])[np.arange(N) % 3]})
    frame.loc[::7, "a"] = np.nan
    numbers = make_pipeline(SimpleImputer(), PolynomialFeatures(2, include_bias=False), StandardScaler())
    both = ColumnTransformer([("n", numbers, ["a", "b"]), ("c", OneHotEncoder(), ["c"])])
    model = make_pipeline(both, LogisticRegression()).fit(frame, Y)
    graph = from_object(model)
    same(outputs_of(graph, frame)["proba"], model.predict_proba(frame), 1e-9, 1e-9)
