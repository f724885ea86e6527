"""Discriminant analyses against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from hbtvm.errors import ModelError
from hbtvm.frontends import from_object
from tests.frontends.predictors.data import ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "model",
    [
        LinearDiscriminantAnalysis(),
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.2),
        QuadraticDiscriminantAnalysis(),
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1),
    ],
)
def test_classes(model: Any, target: str) -> None:
    check(model.fit(X, TARGETS[target]), ROWS)


def test_quadratic_far_from_the_origin() -> None:
    model = QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X + 1e6, TARGETS["several"])
    check(model, ROWS + 1e6, rtol=1e-6, atol=1e-7, single=False)


def test_damaged_ones_are_refused() -> None:
    model = QuadraticDiscriminantAnalysis().fit(X, TARGETS["several"])
    model.scalings_[1] = -np.asarray(model.scalings_[1])
    with pytest.raises(ModelError, match="scalings_"):
        from_object(model)
    damaged = LinearDiscriminantAnalysis().fit(X, TARGETS["several"])
    damaged.coef_ = damaged.coef_[:, :-1]
    with pytest.raises(ModelError, match="coef_ has the shape"):
        from_object(damaged)
