"""Linear models and networks on an OpenCL device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor

import hbtvm
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.candidates.samples import error_scale, plain_sums, sample_rows
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.networks.network import Network
from hbtvm.measuring.device import DeviceCandidate
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import FUNCTIONS, apply
from hbtvm.operators.shapes import concat, select
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.schedules.space import Config
from hbtvm.strategies import Strategy, make_linear, make_network, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests import networks
from tests.models import data, targets
from tests.strategies.test_linear import CASES, random_linear
from tests.strategies.test_network import check

pytestmark = pytest.mark.usefixtures("opencl", "shared_workers")

ANY = resolve({"kind": "opencl"})
_SAMPLES = int(os.environ.get("HBTVM_OPENCL_SAMPLES", "1"))
"""Sampled configurations of each case."""


def _run(strategy: Strategy, operand: Any, X: np.ndarray, rows: int, config: Config) -> np.ndarray:
    workload = workload_of(operand, rows)
    assert strategy.space(workload, ANY).contains(config)
    code, launch = build_code(strategy.module(workload, config), ANY, portable=False)
    return DeviceCandidate(entry_of(operand, strategy, workload, config, code, launch), kind="opencl").run(X)


def _configs(strategy: Strategy, operand: Any, rows: int, rng: np.random.Generator) -> list[Config]:
    """Return the default for a single row, and else samples."""
    workload = workload_of(operand, rows)
    if rows == 1:
        return [strategy.default(workload, ANY)]
    return list(strategy.space(workload, ANY).sample(rng, _SAMPLES))


@pytest.mark.parametrize("case", CASES)
def test_linear_sums_are_the_references(case: str) -> None:
    rng = np.random.default_rng(len(case))
    linear = random_linear(rng, **CASES[case])
    cases: tuple[tuple[DType, int], ...] = (("float64", 1), ("float32", 3000))
    for dtype, rows in cases:
        X, operand = sample_rows(linear, 150, dtype), make_linear(linear, dtype, True)
        strategy = strategies_on(ANY, operand.family)["linear"]
        for config in _configs(strategy, operand, rows, rng):
            np.testing.assert_allclose(
                _run(strategy, operand, X, rows, config),
                plain_sums(linear, X),
                rtol=0,
                atol=1e-13 * error_scale(linear, X),
                err_msg=str(config),
            )


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_scores_are_the_references(name: str) -> None:
    network, rng = networks.network(name), np.random.default_rng(len(name))
    cases: tuple[tuple[DType, int], ...] = (("float64", 1), ("float32", 100_000))
    for dtype, rows in cases:
        X, operand = networks.rows(77, dtype), make_network(network, dtype)
        strategy = strategies_on(ANY, operand.family)["fused"]
        for config in _configs(strategy, operand, rows, rng):
            check(_run(strategy, operand, X, rows, config), network, X)


def test_every_function_is_numpys() -> None:
    """Of numbers, of infinities and zeros, and of values that are NaN."""
    x = np.array([-np.inf, -3.7, -0.5, -0.0, 0.0, 1e-300, 0.3, 0.999, 1.0, 2.5, 700.0, np.inf, np.nan])
    X = np.array(np.meshgrid(x, x)).reshape(2, -1).T.copy()
    a, b = select(Input(2), [0]), select(Input(2), [1])
    parts: list[Node] = [
        apply(name, *(a, b)[: row.arity]) for name, row in FUNCTIONS.items() if row.arity <= 2
    ]
    with np.errstate(all="ignore"):
        network = Network(2, concat(parts))
        want = network.reference(X)
    operand = make_network(network, "float64")
    strategy = strategies_on(ANY, operand.family)["fused"]
    config = strategy.default(workload_of(operand, 1000), ANY)
    np.testing.assert_allclose(_run(strategy, operand, X, 1000, config), want, rtol=1e-13, atol=1e-300)


def test_models_predict_as_the_library() -> None:
    X, y = data()[0], targets("yes_no")
    line = LogisticRegression().fit(X, y)
    layers = MLPRegressor(hidden_layer_sizes=(9, 5), max_iter=20, tol=1.0, n_iter_no_change=2).fit(X, X[:, 0])
    for library, strategy, method in ((line, "linear", "predict_proba"), (layers, "fused", "predict")):
        model = hbtvm.compile(library, target={"kind": "opencl"}, batch_sizes=(1, 5000))
        assert {kernel.strategy for kernel in model.package.kernels} == {strategy}
        loaded = Model(from_bytes(to_bytes(model.package)))
        for n in (1, 33, len(X)):
            got, want = (getattr(each, method)(X[:n]) for each in (loaded, library))
            np.testing.assert_allclose(got, want, rtol=1e-9)


def test_a_search_tunes_a_network(tmp_path: Path) -> None:
    X = data()[0]
    library = MLPRegressor(hidden_layer_sizes=(9, 5), max_iter=20, tol=1.0, n_iter_no_change=2).fit(
        X, X[:, 0]
    )
    model = hbtvm.tune(library, target="opencl", batch_sizes=[50], trials=2, log=tmp_path / "log.jsonl")
    np.testing.assert_allclose(model.predict(X), library.predict(X), rtol=1e-9)
