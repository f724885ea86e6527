"""The k nearest points, found by filters in float32, are those of all distances in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from hbtvm.compiler.candidates.program import make_executor
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input
from hbtvm.operators.distances import Distance, TopK
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_network, strategies_on, workload_of
from hbtvm.strategies.network.nearest import tables
from tests import networks
from tests.kernels import CPU, build_unchecked

T, F = 611, 6
"""Points, no multiple of a block, and columns."""

Run = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From points and rows to what `TopK` gives."""


def network(points: np.ndarray, k: int) -> Network:
    return Network(points.shape[1], TopK(Distance(Input(points.shape[1]), points), k).checked())


def kernel(k: int, batch: int, folder: Path, **changes: Any) -> Run:
    """A kernel for any T points, built once."""
    operand = make_network(network(np.zeros((T, F)), k), "float64")
    strategy, workload = strategies_on(CPU, operand.family)["fused"], workload_of(operand, batch)
    config: Config = {**strategy.default(workload, CPU), **changes}
    assert strategy.space(workload, CPU).contains(config) and config["points"]
    path = str(folder / f"{k}-{batch}-{'-'.join(map(str, config.values()))}.so")
    build_unchecked(strategy, workload, config, CPU, path)
    function = tvm_ffi.load_module(path)["main"]

    def run(points: np.ndarray, X: np.ndarray) -> np.ndarray:
        own = make_network(network(points, k), "float64")
        executor = make_executor(function, own, strategy, workload, config, 1)
        if batch > 1:
            return executor.run(X)
        return np.concatenate([executor.run(X[n : n + 1]) for n in range(len(X))])

    return run


def expected(points: np.ndarray, X: np.ndarray, k: int) -> np.ndarray:
    """As `TopK.reference`, of distances that are summed column by column, as scikit-learn's trees do."""
    away = np.zeros((len(X), len(points)))
    with np.errstate(all="ignore"):
        for f in range(points.shape[1]):
            away += (X[:, f, None] - points[:, f]) ** 2
    return TopK(Input(len(points)), k).reference(away)


def _normal(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(T, F)), rng.normal(size=(70, F))


def _ties(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 3, (T, F)) * 1.0, rng.integers(0, 7, (70, F)) * 0.5


def _duplicates(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    points = rng.normal(size=(T // 10, F))[rng.integers(0, T // 10, T)]
    return points, np.concatenate([points[:30], rng.normal(size=(40, F))])


def _one_place(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return np.full((T, F), 3.25), rng.normal(size=(5, F))


def _far_from_zero(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return 1e6 + 1e-3 * rng.normal(size=(T, F)), 1e6 + 1e-3 * rng.normal(size=(70, F))


def _far_clusters(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    centers = 1e6 * rng.normal(size=(5, F))
    points = centers[rng.integers(0, 5, T)] + 1e-2 * rng.normal(size=(T, F))
    return points, np.concatenate([points[:20] + 1e-2, centers + 1e-2, 1e9 * rng.normal(size=(20, F))])


def _column_scales(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    scales = np.array([1e-9, 1e-3, 1.0, 1e3, 1e9, 0.0])
    points = rng.normal(size=(T, F)) * scales
    points[: T // 2, 4] = 0.5
    X = rng.normal(size=(70, F)) * scales
    X[:35, 4] = 0.5
    return points, X


def _sizes(size: float) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    def make(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return size * rng.normal(size=(T, F)), size * rng.normal(size=(20, F))

    return make


def _far_rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    # Far away many distances are equal but for rounding; from 1e154 on they are infinite.
    sizes = 10.0 ** np.array([0, 1, 3, 5, 7, 15, 30, 40, 155, 300])
    signs = rng.choice([-1.0, 1.0], (len(sizes), F))
    return rng.normal(size=(T, F)), sizes[:, None] * signs


DATA: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    "normal": _normal,
    "ties": _ties,
    "duplicates": _duplicates,
    "one place": _one_place,
    "far from zero": _far_from_zero,
    "far clusters": _far_clusters,
    "columns of all sizes": _column_scales,
    "tiny": _sizes(1e-30),
    "squares below the smallest number": _sizes(1e-170),
    "large": _sizes(1e30),
    "squares beyond the largest number": _sizes(1e200),
    "far rows": _far_rows,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(
    scope="module",
    params=[(4, 1000, {}), (16, 1000, {}), (100, 1000, {}), (4, 1, {}), (40, 1, {"points": 16})],
    ids=["rows", "several", "many", "one row", "many of one row"],
)
def searched(request: pytest.FixtureRequest, folder: Path) -> tuple[int, Run]:
    k, batch, changes = request.param
    return k, kernel(k, batch, folder, **changes)


@pytest.mark.parametrize("name", DATA)
def test_the_nearest_and_their_order(name: str, searched: tuple[int, Run]) -> None:
    k, run = searched
    points, X = DATA[name](np.random.default_rng(3))
    np.testing.assert_array_equal(run(points, X), expected(points, X, k))


def test_rows_with_what_is_no_number(searched: tuple[int, Run]) -> None:
    k, run = searched
    points, X = _normal(np.random.default_rng(4))
    X[3, 2], X[5, 0], X[6, 1] = np.nan, np.inf, -np.inf
    got, want = run(points, X), expected(points, X, k)
    np.testing.assert_array_equal(got[:, k:], want[:, k:])
    assert np.all(got[[3, 5, 6], :k] == np.inf)


def test_random_configurations(folder: Path) -> None:
    operand = make_network(network(np.zeros((T, F)), 4), "float64")
    space = strategies_on(CPU, operand.family)["fused"].space(workload_of(operand, 1000), CPU)
    assert all(knob.name != "points" or 0 in knob.choices for knob in space.knobs)
    rng = np.random.default_rng(5)
    for config in [one for one in space.sample(rng, 12) if one["points"]][:4]:
        run = kernel(4, 1000, folder, **config)
        for make in (_ties, _far_clusters):
            points, X = make(rng)
            np.testing.assert_array_equal(run(points, X)[:, 4:], expected(points, X, 4)[:, 4:])


@pytest.mark.parametrize(("batch", "k", "width"), [(1000, 3, 45), (1, 3, 45), (1, 20, 20)])
def test_smallest_of_any_values(batch: int, k: int, width: int) -> None:
    rng = np.random.default_rng(7)
    X = rng.integers(-4, 5, (70, width)) * 0.25
    X[rng.random(X.shape) < 0.2] = np.inf
    X[:10] = -np.inf
    X[10:30, 2:] = np.inf
    made = Network(width, TopK(Input(width), k).checked())
    np.testing.assert_array_equal(networks.run(made, networks.default(made, batch), X), made.reference(X))


def test_behind_other_operators() -> None:
    # The input of the distances is computed, and so is something from what is found.
    made, X = networks.network("nearest"), networks.rows(77)
    config = networks.default(made, 1000)
    got = networks.run(made, {**config, "points": 16}, X)
    np.testing.assert_allclose(got, made.reference(X), rtol=1e-9)
    assert config["points"] == 0  # 40 points are too few


@pytest.mark.parametrize("name", DATA)
def test_slack_covers_rounding(name: str) -> None:
    """What the filter's float32 numbers are off by stays below half of the slack, wherever that is finite."""
    from hbtvm.schedules.network.plan import plan

    points, X = DATA[name](np.random.default_rng(6))
    operand = make_network(network(points, 4), "float64")
    strategy, workload = strategies_on(CPU, operand.family)["fused"], workload_of(operand, 1000)
    made: Any = plan({**workload}, strategy.default(workload, CPU))
    (at,) = made.nearest.values()
    own = tables(made, at, points)
    scale, a, b, c = own[f"t{at}_limits"]
    near = own[f"t{at}_filter"].reshape(-1, F + 1, made.points).transpose(0, 2, 1).reshape(-1, F + 1)[:T]
    with np.errstate(all="ignore"):
        moved = (X - own[f"t{at}_center"]) * scale
        squares = (moved**2).sum(axis=1)
        slack = a + b * np.sqrt(squares) + c * squares
        got = (np.float32(-2) * moved.astype(np.float32)) @ near[:, :F].T + near[:, F]
        assert got.dtype == np.float32
        wide = np.asarray(points - own[f"t{at}_center"], np.longdouble) * scale
        want = (wide**2).sum(axis=1) - 2 * (moved.astype(np.longdouble) @ wide.T)
        finite = (squares < 2.0**100) & (a < 2.0**100)
        off = np.abs(got.astype(np.longdouble) - want)[finite]
    assert np.all(off <= slack[finite, None] / 2)
