"""Mixtures of Gaussians against scikit-learn, and the digamma function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma as expected
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from hbtvm.errors import ModelError
from hbtvm.frontends import from_object
from hbtvm.frontends.predictors.gaussian.special import digamma
from tests.frontends.predictors.data import ROWS, X
from tests.frontends.predictors.oracle import check


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
def test_mixtures(covariance: str) -> None:
    options = {"n_components": 3, "covariance_type": covariance, "random_state": 0, "reg_covar": 1e-3}
    check(GaussianMixture(**options).fit(X), ROWS)
    for kind in ("dirichlet_process", "dirichlet_distribution"):
        model = BayesianGaussianMixture(
            **options, weight_concentration_prior_type=kind, max_iter=300, tol=0.05
        )
        check(model.fit(X), ROWS)


def test_damaged_ones_are_refused() -> None:
    model = GaussianMixture(2, random_state=0).fit(X)
    model.precisions_cholesky_ = -model.precisions_cholesky_
    with pytest.raises(ModelError, match="factors of precisions"):
        from_object(model)


def test_digamma() -> None:
    x = np.concatenate([np.geomspace(1e-6, 1e6, 2000), np.arange(1, 40) / 2])
    np.testing.assert_allclose(digamma(x), expected(x), rtol=1e-13, atol=1e-13)
