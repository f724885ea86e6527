"""Bins, quantiles and powers to the bit, in float32 and float64; as operators within rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PowerTransformer, QuantileTransformer, StandardScaler

from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.steps import Within
from hbtvm.graph.lower_network import lower
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.trees.reference import margins
from tests.feeds import feed_matrix
from tests.frontends.transformers.oracle import check, raw_of, table_of

pytestmark = pytest.mark.filterwarnings("ignore:Bins whose width")

CURVES: dict[str, Any] = {
    "bins": lambda: KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
    "bins dense": lambda: KBinsDiscretizer([2, 3, 4, 5, 6], encode="onehot-dense", strategy="uniform"),
    "bins sparse": lambda: KBinsDiscretizer(3, strategy="kmeans"),
    "bins float32": lambda: KBinsDiscretizer(3, encode="ordinal", dtype=np.float32, strategy="uniform"),
    "bins onehot float64": lambda: KBinsDiscretizer(3, dtype=np.float64, strategy="uniform"),
    "quantiles": lambda: QuantileTransformer(n_quantiles=60),
    "quantiles few": lambda: QuantileTransformer(n_quantiles=5, random_state=0),
    "quantiles normal": lambda: QuantileTransformer(n_quantiles=60, output_distribution="normal"),
    "power": lambda: PowerTransformer(),
    "power alone": lambda: PowerTransformer(standardize=False),
    "box-cox": lambda: PowerTransformer("box-cox"),
}


def rows_of(seed: int, dtype: str, *, nan: bool = False, positive: bool = False, n: int = 200) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)) * [1, 1e-3, 40, 7, 2] + [0, 5, 1, -3, 0]
    # Ties, and zeros beside a long tail.
    x[:, 3] = np.round(x[:, 3])
    x[:, 4] = np.exp(x[:, 4]) * (rng.random(n) < 0.6)
    if positive:
        x = np.abs(x) + 0.1
    if nan:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x.astype(dtype)


def fitted(name: str, dtype: str) -> tuple[Any, np.ndarray, np.ndarray]:
    nan, positive = "bins" not in name, name == "box-cox"
    model = CURVES[name]().fit(rows_of(0, dtype, nan=nan, positive=positive))
    rows = rows_of(1, dtype, nan=nan, positive=positive)
    rows[:50] = rows_of(0, dtype, nan=nan, positive=positive)[:50]
    return model, rows, 2 * rows[::-1] if not positive else rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CURVES)
def test_curves_round_as_the_library(name: str, dtype: str) -> None:
    model, rows, wide = fitted(name, dtype)
    for other in ("float32", "float64"):
        check(model, rows.astype(other))
        check(model, wide.astype(other))


@pytest.mark.parametrize("name", CURVES)
def test_curves_as_operators(name: str) -> None:
    model, rows, wide = fitted(name, "float64")
    table = table_of(model, 5)
    lowered = lower(TableRows(table, True, True), None)
    assert all(not feed.steps for feed in lowered.feeds.feeds), "numpy computes something"
    for x in (rows, wide):
        expected = evaluate(table, raw_of(x))
        np.testing.assert_allclose(lowered.anchor.reference(x), expected, rtol=1e-12, atol=1e-13)


def test_what_columns_share_is_computed_once() -> None:
    model, *_ = fitted("bins dense", "float64")
    network = lower(TableRows(table_of(model, 5)), None).anchor
    assert {node.kind: node.width for node in network.nodes}["bucketize"] == 5


@pytest.mark.parametrize("name", ["bins", "quantiles", "quantiles normal", "power", "box-cox"])
def test_trees_see_the_same(name: str) -> None:
    rows = rows_of(0, "float64", positive=True, n=400)
    model = make_pipeline(StandardScaler() if name != "box-cox" else "passthrough", CURVES[name]())
    model = make_pipeline(*model[:], RandomForestRegressor(8, random_state=0)).fit(rows, rows.sum(axis=1))
    graph = from_object(model)
    # What is outside a function's domain is made missing on the host.
    hosted = sum(any(not isinstance(step, Within) for step in feed.steps) for feed in graph.feeds)
    assert hosted <= (0 if name == "bins" else 2), "the trees' thresholds are not moved"
    # Trees' thresholds are half way between values of training.
    ordered = np.sort(rows, axis=0)
    middle = (ordered[1:] + ordered[:-1]) / 2
    near = [np.nextafter(middle, to) for to in (-np.inf, np.inf)]
    x64 = np.concatenate([rows, rows_of(2, "float64", positive=True)[:100], middle, *near])
    for x in (x64, x64.astype(np.float32)):
        anchor = graph.single if x.dtype == np.float32 and graph.single is not None else graph.anchor
        scores = margins(anchor, feed_matrix(graph.feeds, raw_of(x), anchor.compare_dtype))
        np.testing.assert_allclose(graph.output.compute(None, scores), model.predict(x), rtol=1e-12)


def test_what_is_refused() -> None:
    model, rows, _ = fitted("bins", "float64")
    with pytest.raises(InputError, match="NaN"):
        evaluate(table_of(model, 5), raw_of(np.full((2, 5), np.nan)))
    model.bin_edges_[2] = model.bin_edges_[2][::-1]
    with pytest.raises(ModelError, match="edges of its bins"):
        table_of(model, 5)
    quantiles, *_ = fitted("quantiles", "float64")
    bins = KBinsDiscretizer(3, strategy="uniform").fit(rows)
    both = make_pipeline(bins, QuantileTransformer(n_quantiles=4).fit(bins.transform(rows)))
    with pytest.raises(UnsupportedModel, match="sparse matrix"):
        from_object(both)
    quantiles.quantiles_ = quantiles.quantiles_[1:]
    with pytest.raises(ModelError, match="shape"):
        table_of(quantiles, 5)
