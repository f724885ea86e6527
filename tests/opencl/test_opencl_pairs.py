"""Sums in pairs of float32 numbers, on a device that is taken for one without float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LinearRegression

import hbtvm
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError, PackageError
from hbtvm.measuring.device import DeviceCandidate
from hbtvm.runtime.model import Model
from hbtvm.runtime.opencl import driver, pairs
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.ensembles import random_ensemble, random_rows
from tests.models import data
from tests.runtime_models import trained

needs_device = pytest.mark.usefixtures("opencl")

ANY = resolve({"kind": "opencl"})


def test_numbers_survive() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(50, 3)) * 10.0 ** rng.integers(-20, 20, (50, 3))
    numbers[0] = np.inf, -np.inf, 0.0
    found = pairs.to_pairs(numbers).view(np.float64)[..., 0]
    pairs.from_pairs(found)
    np.testing.assert_allclose(found, numbers, rtol=2.0**-48)


@needs_device
@pytest.mark.parametrize("name", strategies_on(ANY))
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (1000, 2)])
def test_sums_are_within_the_bound(
    name: str, rows: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, strategy = np.random.default_rng(5), strategies_on(ANY)[name]
    ensemble = random_ensemble(
        rng,
        compare_dtype="float32",
        trees=30,
        max_leaves=8,
        groups=groups,
        missing="left",
        oblivious=name == "oblivious",
    )
    # Values whose sums need more digits than float32 has.
    value = rng.normal(size=ensemble.value.shape) * 2.0 ** rng.integers(-12, 12, ensemble.value.shape)
    value = value.astype(np.float32)
    ensemble = replace(ensemble, value=value.astype(np.float64), divisor=3.0)
    forest = make_forest(ensemble, "float32", "float32")
    workload = workload_of(forest, rows)
    assert strategy.refuse(workload) is None
    config = strategy.default(workload, ANY)
    if rows == 1:  # several blocks' sums, which the score epilogue adds
        drawn = strategy.space(workload, ANY).sample(rng, 300)
        config = next(each for each in drawn if int(each["tree_blocks"]) > 1)
    parts = strategy.signature(workload, config).parts
    assert (parts > 1) == (rows == 1)
    code, launch = build_code(strategy.module(workload, config), ANY, False, parts)
    entry = entry_of(forest, strategy, workload, config, code, launch)
    X = random_rows(rng, ensemble, 77, "float32")
    want = DeviceCandidate(entry, kind="opencl").run(X)
    monkeypatch.setattr(driver.device(), "doubles", False)
    got = DeviceCandidate(entry, kind="opencl").run(X)
    bound = 3 * 30 * 2.0**-48 * 30 * np.abs(value).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)
    assert np.abs(want - want.astype(np.float32)).max() > bound  # float32 would not do


@needs_device
def test_models_of_trees_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    booster, graph = trained("lgb_real_goss")
    package = hbtvm.compile(graph, target=ANY, batch_sizes=[50]).package
    X, y = data()
    forest = xgboost.XGBRegressor(n_estimators=5, n_jobs=1).fit(X, y)
    float32 = hbtvm.compile(forest, target=ANY, batch_sizes=[50]).package
    line = hbtvm.compile(LinearRegression().fit(X, y), target=ANY, batch_sizes=[50]).package
    monkeypatch.setattr(driver.device(), "doubles", False)
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    model = Model(package)
    np.testing.assert_allclose(model.predict(rows), booster.predict(rows), rtol=1e-5)
    with pytest.raises(InputError, match=r"opencl:0 \(.*\) has no float64 .* pass float32 rows"):
        model.predict(rows.astype(np.float64))
    np.testing.assert_allclose(Model(float32).predict(X), forest.predict(X), rtol=1e-5)  # casts, as XGBoost
    with pytest.raises(PackageError, match=r"has no float64 .* in which a kernel for float.. rows computes"):
        Model(line).predict(X)
    assert resolve("opencl")["arch"] == driver.device().arch
