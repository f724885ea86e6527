"""Products of rows and weights: sums in float32 stay within their bound, whatever the rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD

import hbtvm
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.schedules.cpu.product import in_float32
from hbtvm.strategies import make_network, strategies_on, workload_of
from hbtvm.strategies.network.rounded_sums import pays
from tests import networks
from tests.kernels import CPU

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

TILE = {"row_tile": 16, "block": 8, "vectors": 3}


def product(features: int, outputs: int, bias: bool = False, seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    x = Input(features)
    output: Node = Contract(x, np.linalg.qr(rng.normal(size=(features, features)))[0][:, :outputs].copy())
    return Network(features, apply("subtract", output, 0.3 * rng.normal(size=outputs)) if bias else output)


def default(network: Network, dtype: Any = "float32", narrow: bool = True, scores: Any = "float32") -> Any:
    operand = make_network(network, dtype, scores, narrow, narrow)
    return strategies_on(CPU, operand.family)["product"].default(workload_of(operand, 1000), CPU)


def weight_of(network: Network) -> np.ndarray:
    (weight,) = [node.weight for node in network.nodes if isinstance(node, Contract)]
    return weight


def hard_rows(weight: np.ndarray) -> np.ndarray:
    """12 tiles of rows that are usual, cancel, differ in scale, over- or underflow, or are zeros."""
    rng = np.random.default_rng(3)
    features = len(weight)
    X = rng.normal(size=(12 * 16, features))
    tiles = X.reshape(12, 16, features)
    tiles[1] += 1e4 * (tiles[10] - tiles[10] @ weight @ weight.T)  # sums cancel
    tiles[2, :, 0] *= 1e7
    tiles[3] *= 1e25
    tiles[4] *= 1e-25
    tiles[5] *= 10.0 ** rng.integers(-15, 15, (16, 1))
    tiles[6] = 0
    tiles[7, 3, 2] = 1e38
    tiles[8] *= 1e-41
    tiles[9, 5] = 1e-30
    return X.astype(np.float32)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scores", ["float32", "float64"])
def test_scores_are_within_a_share_of_the_largest(bias: bool, scores: Any) -> None:
    network = product(20, 10, bias)
    config = {**default(network, scores=scores), **TILE}
    assert in_float32(config)
    X = hard_rows(weight_of(network))
    with np.errstate(over="ignore"):
        want = network.reference(X.astype(np.float64)).astype(scores)
    got = networks.run(network, config, X, scores=scores, narrow=True, name="product")
    largest = np.abs(want.reshape(12, 16, 10)).max(axis=1, keepdims=True)
    error = np.abs(got.astype(np.float64) - want.astype(np.float64)).reshape(12, 16, 10)
    assert np.isfinite(got).all()
    assert (error <= 1e-5 * largest).all()
    # Computed in float64; the tile that cancels would be wrong by 1e-3 in float32.
    for tile in (1, 3, 6):
        assert (error[tile] <= 1.3e-7 * largest[tile]).all()


def test_the_last_tile_is_judged_by_its_rows_alone() -> None:
    network = product(20, 10)
    weight, constant = weight_of(network), np.full(10, 0.6)
    network = Network(20, apply("subtract", network.output, constant))
    rng = np.random.default_rng(0)
    X = ((constant + 1e-4 * rng.normal(size=(3, 10))) @ weight.T).astype(np.float32)  # scores almost cancel
    want = network.reference(X.astype(np.float64))
    got = networks.run(
        network, {**default(network), **TILE}, X, scores="float32", narrow=True, name="product"
    )
    assert (np.abs(got - want) <= 1e-5 * np.abs(want).max(axis=0)).all()


def test_values_that_are_not_finite_stay_in_their_rows() -> None:
    network = product(20, 10)
    X = np.random.default_rng(0).normal(size=(48, 20)).astype(np.float32)
    X[3, 2], X[20, 4] = np.nan, np.inf
    got = networks.run(
        network, {**default(network), **TILE}, X, scores="float32", narrow=True, name="product"
    )
    want = network.reference(X.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("features, outputs", [(5, 4), (7, 5), (20, 17), (33, 4), (130, 50)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_configurations(features: int, outputs: int, dtype: Any) -> None:
    network = product(features, outputs)
    X = np.random.default_rng(2).normal(size=(37, network.n_features)).astype(dtype)
    want = network.reference(X.astype(np.float64))
    operand = make_network(network, dtype, dtype, True, True)
    strategy = strategies_on(CPU, operand.family)["product"]
    workload = workload_of(operand, 1000)
    for config in strategy.space(workload, CPU).sample(np.random.default_rng(4), 3):
        got = networks.run(network, config, X, scores=dtype, narrow=True, name="product")
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


def test_weights_decide_whether_float32_pays() -> None:
    rng = np.random.default_rng(0)
    usual = np.linalg.qr(rng.normal(size=(20, 20)))[0][:, :10]
    none = np.zeros(10)
    assert pays(usual, none, 10)
    assert not pays(usual, none + 5, 10)  # the rows' means cancel
    assert not pays(usual * 1e300, none, 10)
    assert not pays(np.hstack([usual, np.zeros((20, 1))]), np.zeros(11), 10)
    assert not pays(rng.normal(size=(500, 8)), np.zeros(8), 10)  # rounding errors of many terms add up


def test_rows_and_threads_do_not_change_bits() -> None:
    network = product(20, 10)
    X = hard_rows(weight_of(network))
    config = {**default(network), **TILE}
    runs = [networks.run(network, config, X, n, "float32", True, name="product") for n in (1000, 100_000)]
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_in_float32_show_that_rows_are_finite(threads: int) -> None:
    X = np.random.default_rng(0).normal(size=(3000, 20)).astype(np.float32)
    svd = TruncatedSVD(10, random_state=0).fit(X.astype(np.float64))
    model = hbtvm.compile(svd, threads=threads)
    X[1000] *= 1e25  # summed in float64, which shows nothing
    np.testing.assert_allclose(model.transform(X), svd.transform(X), rtol=1e-5, atol=1e-5)
    for row, column, value in [(0, 19, np.nan), (7, 0, -np.nan), (1500, 3, np.inf), (2999, 9, -np.inf)]:
        wrong = X.copy()
        wrong[row, column] = value
        with pytest.raises(hbtvm.InputError, match=f"row {row}"):
            model.transform(wrong)


def test_rows_of_scores_do_not_overwrite_others() -> None:
    network = product(20, 9)  # vectors of 16 outputs
    X = np.random.default_rng(0).normal(size=(64, 20)).astype(np.float32)
    config = {**default(network), **TILE}
    whole = networks.run(network, config, X, scores="float32", narrow=True, name="product")
    for first in range(0, 64, 16):  # each tile alone
        rows = X[first : first + 16]
        part = networks.run(network, config, rows, scores="float32", narrow=True, name="product")
        np.testing.assert_array_equal(whole[first : first + 16], part)
