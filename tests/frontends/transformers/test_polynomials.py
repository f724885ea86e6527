"""Polynomials, splines and centred kernels against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import KernelCenterer, PolynomialFeatures, SplineTransformer

from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.lower_network import lower
from hbtvm.graph.networks.network import TableRows
from tests.frontends.transformers.oracle import check, raw_of, table_of


def rows_of(seed: int, width: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(120, width)) * 2 + 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"degree": 3},
        {"degree": (2, 3)},
        {"degree": (2, 4), "include_bias": False},
        {"degree": 3, "interaction_only": True},
        {"degree": (3, 3), "interaction_only": True, "include_bias": False},
        {"degree": 0},
        {"degree": 1, "include_bias": False},
        {"degree": 6, "interaction_only": True},
    ],
    ids=str,
)
def test_polynomials_to_the_bit(options: dict[str, Any]) -> None:
    check(PolynomialFeatures(**options).fit(rows_of(0)), rows_of(1))


def test_polynomials_refuse_missing_and_too_many() -> None:
    table = table_of(PolynomialFeatures().fit(rows_of(0)), 3)
    with pytest.raises(InputError, match="NaN"):
        evaluate(table, raw_of(np.full((2, 3), np.nan)))
    with pytest.raises(UnsupportedModel, match="columns"):
        table_of(PolynomialFeatures(4).fit(np.zeros((1, 90))), 90)
    with pytest.raises(UnsupportedModel, match="degree"):
        table_of(PolynomialFeatures(70).fit(np.zeros((1, 1))), 1)


MODES = ["constant", "linear", "continue", "periodic"]


def splines(options: dict[str, Any], rows: np.ndarray) -> SplineTransformer:
    return SplineTransformer(**options).fit(rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5])
def test_splines(degree: int, mode: str) -> None:
    rows = rows_of(0)
    model = splines({"n_knots": 7, "degree": degree, "extrapolation": mode, "knots": "quantile"}, rows)
    wide = np.concatenate([rows_of(1), 3 * rows_of(2), rows])
    if (degree, mode) == (0, "constant"):
        # scikit-learn fails above the last knot.
        wide = np.minimum(wide, rows.max(axis=0))
    table = table_of(model, 3)
    assert table.names == tuple(model.get_feature_names_out())
    expected = model.transform(wide)
    lowered = lower(TableRows(table), None)
    np.testing.assert_allclose(lowered.anchor.reference(wide), expected, rtol=1e-9, atol=1e-12)


TIED = {
    "first": [0.0, 0, 0, 1, 2, 3],
    "last": [0.0, 1, 2, 3, 3, 3],
    "both": [0.0, 0, 0, 1, 2, 3, 3, 3],
    "inner": [0.0, 1, 1, 1, 1, 2, 3],
    "two values": [0.0, 0, 3, 3],
    "one value": [2.0, 2],
}
"""Numbers of training, of which quantiles are equal: scipy computes empty intervals at the ends."""


@pytest.mark.parametrize("mode", ["error", *MODES])
@pytest.mark.parametrize("name", TIED)
def test_splines_of_tied_quantiles(name: str, mode: str) -> None:
    known = np.repeat(TIED[name], 6)[:, None]
    at = np.unique(known)
    rows = np.concatenate([at, np.nextafter(at, 9), np.nextafter(at, -9), np.linspace(-4, 7, 23)])[:, None]
    if mode == "error":
        rows = np.clip(rows, at[0], at[-1])
    for degree in (0, 1, 2, 3):
        if (degree, mode) == (0, "constant"):
            continue
        for knots in (4, 5, 8):
            model = splines(
                {"n_knots": knots, "degree": degree, "extrapolation": mode, "knots": "quantile"}, known
            )
            found = evaluate(table_of(model, 1), raw_of(rows))
            np.testing.assert_allclose(found, model.transform(rows), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("degree", [1, 3])
def test_periodic_splines_of_far_numbers(degree: int) -> None:
    known = np.linspace(0.5, 3.5, 30)[:, None]
    model = splines({"n_knots": 5, "degree": degree, "extrapolation": "periodic"}, known)
    table = table_of(model, 1)
    far = 3 * 2.0**24
    near = np.concatenate([np.linspace(-far, far, 101) + 0.5, [0.5 - far, 0.5 + far]])[:, None]
    np.testing.assert_allclose(evaluate(table, raw_of(near)), model.transform(near), rtol=0, atol=1e-6)
    for row in (np.nextafter(0.5 + far, np.inf), np.nextafter(0.5 - far, -np.inf), 1e30, -1e300):
        with pytest.raises(InputError, match="got NaN"):
            evaluate(table, raw_of(np.array([[1.0], [row]])))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_splines_of_missing_numbers(mode: str, bias: bool) -> None:
    rows = rows_of(3)
    rows[np.random.default_rng(0).random(rows.shape) < 0.2] = np.nan
    model = splines({"handle_missing": "zeros", "extrapolation": mode, "include_bias": bias}, rows)
    found = evaluate(table_of(model, 3), raw_of(rows))
    np.testing.assert_allclose(found, model.transform(rows), rtol=1e-9, atol=1e-12)
    # Of sparse results, scikit-learn 1.9 sets zeros in the first column's splines only.
    assert table_of(model.set_params(sparse_output=True), 3).sparse


def test_splines_refuse_what_is_beyond_their_knots() -> None:
    rows = rows_of(0)
    model = splines({"extrapolation": "error"}, rows)
    table = table_of(model, 3)
    lowered = lower(TableRows(table), None)
    assert all(feed.steps and not feed.allow_nan for feed in lowered.feeds.feeds)
    inside = np.clip(rows_of(1), rows.min(axis=0), rows.max(axis=0))
    np.testing.assert_allclose(evaluate(table, raw_of(inside)), model.transform(inside), atol=1e-12)
    with pytest.raises(InputError, match="NaN"):
        evaluate(table, raw_of(rows * 2))


def test_kernel_centerer() -> None:
    known, rows = (np.random.default_rng(seed).random((20, 20)) for seed in (0, 1))
    model = KernelCenterer().fit(known)
    found = evaluate(table_of(model, 20), raw_of(rows))
    np.testing.assert_allclose(found, model.transform(rows), rtol=1e-12, atol=1e-15)
