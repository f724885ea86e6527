"""Multi-layer perceptrons against scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check


def fitted(model: Any, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.set_params(max_iter=8, random_state=0).fit(X, y)


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("target", ["binary", "strings"])
def test_classifiers(target: str, activation: str) -> None:
    check(fitted(MLPClassifier((7, 5), activation=activation), TARGETS[target]), ROWS)


def test_several_labels_at_once() -> None:
    check(fitted(MLPClassifier((9,)), (X[:, :3] > np.arange(3)).astype(int)), ROWS)


@pytest.mark.parametrize("activation", ["logistic", "relu"])
def test_regressors(activation: str) -> None:
    check(fitted(MLPRegressor(hidden_layer_sizes=(7,), activation=activation), NUMBERS), ROWS)
    check(
        fitted(
            MLPRegressor(hidden_layer_sizes=(7,), activation=activation), np.stack([NUMBERS, X[:, 0]], axis=1)
        ),
        ROWS,
    )


def test_poisson_loss_has_a_logarithmic_link() -> None:
    check(fitted(MLPRegressor(hidden_layer_sizes=(5,), loss="poisson", alpha=0.1), np.abs(X[:, 0])), ROWS)


def test_damaged_and_unknown_ones_are_refused() -> None:
    model = fitted(MLPRegressor(hidden_layer_sizes=(5,)), NUMBERS)
    model.activation = "softplus"
    with pytest.raises(UnsupportedModel, match="the MLPRegressor has 'softplus' as its activation"):
        from_object(model)
    model.activation, model.coefs_ = "relu", model.coefs_[:1]
    with pytest.raises(ModelError, match="1 layers and 2 intercepts"):
        from_object(model)
