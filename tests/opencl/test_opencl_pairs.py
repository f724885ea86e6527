"""Pairs of float32 numbers in place of float64, on a device that is taken for one without float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.candidates.samples import error_scale, plain_sums, sample_rows
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError, PackageError
from hbtvm.graph.networks.network import Network
from hbtvm.measuring.device import DeviceCandidate
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import FUNCTIONS, apply
from hbtvm.operators.shapes import concat, select
from hbtvm.runtime.model import Model
from hbtvm.runtime.opencl import driver, pairs
from hbtvm.strategies import make_forest, make_linear, make_network, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests import networks
from tests.cuda.test_cuda_stages import MODELS, NEW, fitted, same
from tests.ensembles import random_ensemble, random_rows
from tests.models import data, targets
from tests.runtime_models import trained
from tests.strategies.test_linear import CASES, random_linear

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

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
    monkeypatch.setattr(driver.device(), "doubles", False)
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    model = Model(package)
    np.testing.assert_allclose(model.predict(rows), booster.predict(rows), rtol=1e-5)
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(model.predict(exact), booster.predict(exact), rtol=1e-5)
    old = tuple(
        replace(kernel, library=kernel.library.replace(pairs.PAIRS.encode(), b""))
        if kernel.dtype == "float64"
        else kernel
        for kernel in package.kernels
    )
    with pytest.raises(InputError, match=r"opencl:0 \(.*\) has no float64 .* pass float32 rows"):
        Model(replace(package, kernels=old)).predict(exact)
    np.testing.assert_allclose(Model(float32).predict(X), forest.predict(X), rtol=1e-5)  # casts, as XGBoost
    assert resolve("opencl")["arch"] == driver.device().arch


CASES_OF_ROWS: tuple[tuple[DType, int], ...] = (("float64", 1), ("float32", 1000))


def _scores(operand: Any, X: np.ndarray, rows: int) -> np.ndarray:
    """Return scores of the default configuration for so many rows."""
    (strategy,) = strategies_on(ANY, operand.family).values()
    workload = workload_of(operand, rows)
    config = strategy.default(workload, ANY)
    code, launch = build_code(strategy.module(workload, config), ANY, portable=False)
    return DeviceCandidate(entry_of(operand, strategy, workload, config, code, launch), kind="opencl").run(X)


@needs_device
@pytest.mark.parametrize("case", CASES)
def test_linear_sums_are_within_the_bound(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = random_linear(np.random.default_rng(len(case)), **CASES[case])
    monkeypatch.setattr(driver.device(), "doubles", False)
    for dtype, rows in CASES_OF_ROWS:
        X = sample_rows(linear, 150, dtype)
        got, scale = _scores(make_linear(linear, dtype, True), X, rows), error_scale(linear, X)
        assert (np.abs(got - plain_sums(linear, X)) <= 3 * 2.0**-48 * scale).all()


@needs_device
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_networks_agree_with_float64(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = networks.network(name)
    monkeypatch.setattr(driver.device(), "doubles", False)
    for dtype, rows in CASES_OF_ROWS:
        X = networks.rows(77, dtype)
        got = _scores(make_network(network, dtype), X, rows)
        np.testing.assert_allclose(got, network.reference(X), rtol=1e-10, atol=1e-12)


@needs_device
def test_functions_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of numbers, infinities and zeros, and of NaN."""
    x = np.array(
        [-np.inf, -3.7, -2.5, -0.5, -0.0, 0.0, 1e-9, 0.3, 0.999, 1.0, 2.5 + 1e-9, 9.0, np.inf, np.nan]
    )
    X = np.array(np.meshgrid(x, x)).reshape(2, -1).T.copy()
    a, b = select(Input(2), [0]), select(Input(2), [1])
    names = [name for name, row in FUNCTIONS.items() if row.arity <= 2]
    parts: list[Node] = [apply(name, *(a, b)[: FUNCTIONS[name].arity]) for name in names]
    network = Network(2, concat(parts))
    with np.errstate(all="ignore"):
        want = network.reference(X)
    monkeypatch.setattr(driver.device(), "doubles", False)
    got = _scores(make_network(network, "float64"), X, 1000)
    narrow = {"sin", "cos", "tan", "arcsin", "arctan", "arcsinh", "arctanh"}
    for column, name in enumerate(names):
        # Some powers are beyond float32's range.
        rows = np.abs(want[:, column]) < 1e30 if name == "power" else slice(None)
        rtol = 3e-6 if name in narrow else 3e-12
        np.testing.assert_allclose(got[rows, column], want[rows, column], rtol, atol=1e-37, err_msg=name)


@needs_device
def test_linear_models_and_networks_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()[0], targets("yes_no")
    monkeypatch.setattr(driver.device(), "doubles", False)
    layers = MLPClassifier((9, 5), max_iter=20, tol=1.0, n_iter_no_change=2, random_state=0)
    for library in (LogisticRegression(), make_pipeline(StandardScaler(), layers)):
        library.fit(X, y)
        model = Model(hbtvm.compile(library, target=ANY, batch_sizes=(1, 5000)).package)
        for rows in (X, X.astype(np.float32), X[:1]):
            exact = library.predict_proba(rows.astype(np.float64))  # scalers keep float32 rows in float32
            np.testing.assert_allclose(model.predict_proba(rows), exact, rtol=1e-9)


@needs_device
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_models_of_several_kernels_predict(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = fitted(name)
    package = hbtvm.compile(library, target=ANY, batch_sizes=(40,)).package
    monkeypatch.setattr(driver.device(), "doubles", False)
    rows = NEW.astype(np.float32)
    if name == "boosted":  # trees that compare a network's float64 numbers
        with pytest.raises(
            PackageError, match=r"has no float64 .* in which a kernel compares numbers that another"
        ):
            Model(package).predict(rows)
    else:
        same(Model(package).predict(rows), library.predict(rows))
