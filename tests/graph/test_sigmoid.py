"""Probabilities at the ends of float32, against XGBoost."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost as xgb

from hbtvm.frontends import from_object
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input
from hbtvm.operators.formulas import sigmoid

ENDS = [
    -3e38, -1e4, -104.0, -103.0, -95.0, -90.0, -88.8, -88.73, -88.72284, -88.7, -88.69, -88.6, -88.1, -88.0,
    -87.9, -87.0, -50.0, -17.0, -16.7, -1.0, -1e-30, 0.0, 1e-8, 1.0, 16.0, 17.0, 50.0, 88.8, 104.0, 1e4,
]  # fmt: skip


def logistic() -> tuple[xgb.Booster, OutputSpec]:
    """A booster that adds nothing to the margins that rows come with."""
    X = np.zeros((20, 1), np.float32)
    parameters = {"objective": "reg:logistic", "base_score": 0.5, "max_depth": 1}
    booster = xgb.train(parameters, xgb.DMatrix(X, np.full(20, 0.5)), 1)
    return booster, from_object(booster).output


def test_small_probabilities_are_xgboosts() -> None:
    booster, spec = logistic()
    rows = xgb.DMatrix(np.zeros((len(ENDS), 1), np.float32), base_margin=np.float32(ENDS))
    np.testing.assert_array_equal(booster.predict(rows, output_margin=True), np.float32(ENDS))
    want = booster.predict(rows)
    assert 3.0e-39 < want.min() < 3.1e-39
    raw = np.float32(ENDS).astype(np.float64)
    found = spec.compute(None, raw[:, None])
    assert found.dtype == np.float32
    # The least are subnormal: so far apart are their neighbours.
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=2e-45)
    one = [spec.compute(None, np.array([[margin]]))[0] for margin in raw.tolist()]
    np.testing.assert_allclose(one, want, rtol=1e-6, atol=2e-45)


def test_other_sigmoids_reach_zero() -> None:
    spec = OutputSpec("regressor", 1, {"response": sigmoid(Input(1))})
    assert spec.compute(None, np.array([[-1e4], [-800.0]])).tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("error")
def test_missing_margins_stay_missing() -> None:
    spec = logistic()[1]
    assert np.isnan(spec.compute(None, np.array([[np.nan], [1.0]]))[0])
