"""Keys in place of the float64 numbers that trees compare, on a device taken for one without float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, StackingRegressor, VotingRegressor
from sklearn.linear_model import Ridge
from tvm import te
from tvm.s_tir import Schedule

import hbtvm
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.building.cuda_source import lower
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.measuring.device import DeviceCandidate
from hbtvm.runtime.model import Model
from hbtvm.runtime.opencl import driver, keys, pairs
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.ensembles import random_ensemble, random_rows
from tests.models import CATEGORY_COLUMN, data, targets

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

needs_device = pytest.mark.usefixtures("opencl")

ANY = resolve({"kind": "opencl"})

_POSITIVE = np.array([0.0, 5e-324, 1e-310, 1e-35, 1.0, 1.7e308, np.inf])

SPECIAL = np.concatenate([-_POSITIVE[::-1], _POSITIVE])
"""Numbers in their order; both zeros are equal."""


def test_keys_are_in_the_order_of_numbers() -> None:
    steps = np.diff(keys.to_keys(SPECIAL))
    np.testing.assert_array_equal(steps > 0, np.diff(SPECIAL) > 0)
    assert (steps >= 0).all()
    nan = np.array([np.nan, -np.nan])
    assert (keys.to_keys(nan) == keys.NAN).all() and keys.to_keys(SPECIAL).max() < keys.NAN


def _source(expression: Any) -> bytes:
    """Return the source of a kernel of an expression of each number."""
    x = te.placeholder((8,), "float64", name="x")
    schedule = Schedule(te.create_prim_func([x, te.compute((8,), lambda i: expression(x[i]), name="y")]))
    schedule.bind(schedule.get_loops(schedule.get_sblock("y"))[0], "threadIdx.x")
    return lower(schedule.mod, ANY)[0].encode()


def test_numbers_that_a_kernel_computes_with_have_no_keys() -> None:
    compared = _source(lambda x: te.if_then_else(x < 0.5, 1, 0).astype("int32"))
    assert keys.arrays_of_keys(compared) == {"x"} and pairs.can_use_pairs(compared)
    added = _source(lambda x: te.if_then_else(x < 0.5, x + 1.0, 0.0))
    assert not keys.arrays_of_keys(added) and not pairs.can_use_pairs(added)


@needs_device
@pytest.mark.parametrize("name", strategies_on(ANY))
@pytest.mark.parametrize(("missing", "values"), [("zero", "float32"), ("mixed", "float64")])
def test_rows_end_in_the_same_leaves(
    name: str, missing: str, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, strategy = np.random.default_rng(5), strategies_on(ANY)[name]
    ensemble = random_ensemble(
        rng,
        compare_dtype="float64",
        trees=12,
        missing=missing,
        categories=missing == "zero" and name != "oblivious",
        oblivious=name == "oblivious",
    )
    # Values whose sums are exact.
    value, base = np.round(ensemble.value * 64) / 64, np.zeros_like(ensemble.base_score)
    ensemble = replace(ensemble, value=value, base_score=base, divisor=1.0)
    forest = make_forest(ensemble, "float64", values)
    workload = workload_of(forest, 1000)
    assert strategy.refuse(workload) is None
    config = strategy.default(workload, ANY)
    code, launch = build_code(strategy.module(workload, config), ANY, False)
    entry = entry_of(forest, strategy, workload, config, code, launch)
    X = random_rows(rng, ensemble, 300, "float64")
    X[:100] = rng.choice(np.append(SPECIAL, -np.nan), (100, X.shape[1]))
    want = margins(ensemble, X)
    for doubles in (True, False):
        monkeypatch.setattr(driver.device(), "doubles", doubles)
        np.testing.assert_array_equal(DeviceCandidate(entry, kind="opencl").run(X), want)


def _near(model: Any) -> np.ndarray:
    """Return rows of a model's thresholds, their neighbours, and special numbers."""
    rng = np.random.default_rng(1)
    X = data(missing=True)[0].copy()
    cut = np.unique(np.concatenate(model))
    pool = [cut, np.nextafter(cut, np.inf), np.nextafter(cut, -np.inf), SPECIAL, [np.nan]]
    at = rng.random(X.shape) < 0.5
    at[:, CATEGORY_COLUMN] = False
    X[at] = rng.choice(np.concatenate(pool), int(at.sum()))
    return X


@needs_device
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zero_as_missing", [False, True])
def test_lightgbm_models_predict(zero_as_missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(missing=True)
    booster = lightgbm.LGBMRegressor(
        n_estimators=8, num_leaves=7, n_jobs=1, verbose=-1, zero_as_missing=zero_as_missing,
        min_child_samples=5, random_state=0,
    ).fit(X, y, categorical_feature=[CATEGORY_COLUMN])  # fmt: skip
    tables = booster.booster_.trees_to_dataframe()
    numbers = tables[tables["decision_type"] == "<="]["threshold"].astype(float)
    rows = _near([numbers.to_numpy()])
    monkeypatch.setattr(driver.device(), "doubles", False)
    model = Model(hbtvm.compile(booster, target=ANY, batch_sizes=[240], dtype="float64").package)
    np.testing.assert_allclose(model.predict(rows), booster.predict(rows), rtol=1e-12)
    assert model.predict(rows[:1]) == pytest.approx(booster.predict(rows[:1]), rel=1e-12)


@needs_device
@pytest.mark.filterwarnings("ignore")
def test_histogram_boosting_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(missing=True)[0], targets("names")
    library = HistGradientBoostingClassifier(
        max_iter=4, min_samples_leaf=5, categorical_features=[CATEGORY_COLUMN]
    ).fit(X, y)
    numbers = [tree.nodes["num_threshold"] for trees in library._predictors for tree in trees]
    rows = _near(numbers)
    package = hbtvm.compile(library, target=ANY, batch_sizes=[240]).package
    monkeypatch.setattr(driver.device(), "doubles", False)
    model = Model(package)
    for each in (rows, rows.astype(np.float32)):
        np.testing.assert_allclose(model.predict_proba(each), library.predict_proba(each), rtol=1e-5)


@needs_device
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ensemble", [VotingRegressor, StackingRegressor])
def test_kernels_of_keys_and_of_pairs_read_the_same_rows(
    ensemble: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = data()
    trees = lightgbm.LGBMRegressor(n_estimators=4, num_leaves=5, n_jobs=1, verbose=-1)
    library = ensemble([("ridge", Ridge()), ("trees", trees)]).fit(X, y)
    package = hbtvm.compile(library, target=ANY, batch_sizes=[240]).package
    monkeypatch.setattr(driver.device(), "doubles", False)
    model = Model(package)
    assert model.package.stages
    for rows in (X, X.astype(np.float32)):
        np.testing.assert_allclose(model.predict(rows), library.predict(rows), rtol=1e-5)
