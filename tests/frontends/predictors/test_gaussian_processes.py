"""Gaussian processes against scikit-learn."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.operators.base import Input, evaluate
from hbtvm.operators.error_function import erf
from tests.answers import same
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check

FEW, GOALS = X[:60], NUMBERS[:60]

KERNELS: dict[str, Any] = {
    "none": None,
    "noise": ConstantKernel(4.0) * RBF([1.0, 2.0, 3.0, 2.0, 1.0, 4.0]) + WhiteKernel(0.1),
    "rough": Matern(2.0, nu=0.5) + ConstantKernel(0.5),
    "smoother": 2.0 * Matern([2.0, 3.0, 1.0, 1.0, 2.0, 5.0], nu=1.5),
    "smooth": Matern(3.0, nu=2.5) ** 2,
    "limit": Matern(3.0, nu=np.inf) + WhiteKernel(0.2),
    "mixture": RationalQuadratic(2.0, 0.7) * DotProduct(0.5),
    "waves": ExpSineSquared(3.0, 20.0) + DotProduct(1.0) ** 2,
}


def regressor(kernel: Any, targets: np.ndarray = GOALS, **options: Any) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None, **options).fit(FEW, targets)


@pytest.mark.parametrize("name", KERNELS)
def test_regressors(name: str) -> None:
    # In float32 the library rounds the quotients of rows and length scales.
    check(regressor(KERNELS[name]), ROWS, single=False)


def test_targets() -> None:
    several = np.stack([GOALS, GOALS**2], axis=1)
    for targets, scaled in ((several, True), (several[:, :1], False), (GOALS, True)):
        check(regressor(KERNELS["noise"], targets, normalize_y=scaled), ROWS, single=False)


def test_a_kernel_that_looks_at_nothing() -> None:
    own = GaussianProcessRegressor(ConstantKernel(2.0) + WhiteKernel(1.0), optimizer=None)
    check(make_pipeline(StandardScaler(), own).fit(FEW, GOALS), ROWS)


@pytest.mark.parametrize("name", ["none", "noise", "mixture"])
@pytest.mark.parametrize("target", ["binary", "strings"])
def test_classifiers(name: str, target: str) -> None:
    model = GaussianProcessClassifier(KERNELS[name], optimizer=None).fit(X[:90], TARGETS[target][:90])
    check(model, ROWS, rtol=1e-8, atol=1e-9, single=False)


def test_classifiers_of_pairs() -> None:
    model = GaussianProcessClassifier(RBF(2.0), optimizer=None, multi_class="one_vs_one")
    model.fit(X[:90], TARGETS["strings"][:90])
    graph = from_object(model)
    assert graph.output.outputs == ("label",)
    compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
    same(compiled.predict(ROWS), model.predict(ROWS), 0, 0)


def test_compiled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = GaussianProcessRegressor(Matern(nu=1.5) + WhiteKernel(), random_state=0).fit(FEW, GOALS)
        classes = GaussianProcessClassifier(1.0 * RBF(), random_state=0).fit(FEW, TARGETS["binary"][:60])
    for model, method in ((fitted, "predict"), (classes, "predict_proba")):
        compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
        for rows in (ROWS, ROWS[:1]):
            same(getattr(compiled, method)(rows), getattr(model, method)(rows), 1e-7, 1e-9)


def test_error_function() -> None:
    x = np.concatenate([np.linspace(-9, 9, 3001), [0.0, 1e-300, -1e-9, 40.0, -np.inf, np.inf]])[:, None]
    finite = x[np.isfinite(x[:, 0])]
    (found,) = evaluate([erf(Input(1))], lambda leaf: finite)
    want = [math.erf(one) for one in finite[:, 0].tolist()]
    np.testing.assert_allclose(found[:, 0], want, rtol=0, atol=1e-14)


class Own(RBF):  # type: ignore[misc]
    """Somebody's own kernel, which may compute anything."""


def test_refusals() -> None:
    kernels: list[tuple[Any, str]] = [
        (Own(), "has the kernel Own"),
        (PairwiseKernel(), "has the kernel PairwiseKernel"),
        (RBF() + Matern(nu=0.7), "Matern kernel with nu=0.7"),
    ]
    for kernel, message in kernels:
        with pytest.raises(UnsupportedModel, match=message):
            from_object(regressor(kernel))
    model = regressor(RBF())
    model.kernel_ = CompoundKernel([RBF()])
    with pytest.raises(UnsupportedModel, match="has the kernel CompoundKernel"):
        from_object(model)
    model = regressor(RBF(2.0))
    model.kernel_.length_scale = -1.0
    with pytest.raises(ModelError, match="length scales"):
        from_object(model)
    model = regressor(RBF(2.0))
    model.alpha_ = model.alpha_[:-1]
    with pytest.raises(ModelError):
        from_object(model)
    with pytest.raises(UnsupportedModel, match="not fitted"):
        from_object(GaussianProcessRegressor())
