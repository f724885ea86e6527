"""Kernels of networks against their references, in default and random configurations."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input
from hbtvm.operators.tables import Bucketize, OneHot
from hbtvm.strategies import make_network, strategies_on, workload_of
from tests import networks
from tests.kernels import CPU


def check(got: np.ndarray, network: networks.Network, X: np.ndarray) -> None:
    want = network.reference(X)
    scale = max(1.0, float(np.nanmax(np.abs(want[np.isfinite(want)]))))
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize("name", networks.NETWORKS)
@pytest.mark.parametrize("batch", [1, 1000])
def test_default_configurations(name: str, batch: int) -> None:
    network, X = networks.network(name), networks.rows(77)
    check(networks.run(network, networks.default(network, batch), X, batch), network, X)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_random_configurations(name: str) -> None:
    network = networks.network(name)
    operand = make_network(network, "float32")
    X = networks.rows(131, "float32")
    rng = np.random.default_rng(1)
    space = strategies_on(CPU, operand.family)["fused"].space(workload_of(operand, 1000), CPU)
    for config in space.sample(rng, 2):
        check(networks.run(network, config, X), network, X)


@pytest.mark.parametrize("name", ["softmax", "layers"])
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("batch", [100, 1000])
def test_tiles_pad_little(name: str, mcpu: str, batch: int) -> None:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    network = networks.network(name)
    workload = workload_of(make_network(network, "float32"), batch)
    strategy = strategies_on(target, workload["family"])["fused"]
    config = strategy.default(workload, target)
    tile = int(config["row_tile"])
    assert config["axis"] == "rows" and -(-batch // tile) * tile <= 1.125 * batch
    assert strategy.space(workload, target).contains(config)
    X = networks.rows(batch, "float32")
    check(networks.run(network, config, X, batch, target=target), network, X)


def test_one_hot_of_many_rows() -> None:
    x = Input(3)
    column, value = np.repeat(np.arange(3, dtype=np.int32), [4, 9, 6]), np.arange(19.0) % 5
    X = np.random.default_rng(0).integers(-1, 6, (77, 3)).astype(float)
    X[5, 1], X[6, 2] = np.nan, np.inf
    for node in (OneHot(x, column, value), OneHot(Bucketize(x, np.array([[0.5, 2.0]] * 3)), column, value)):
        network = Network(3, node)
        got = networks.run(network, networks.default(network, 1000), X)
        np.testing.assert_array_equal(got, network.reference(X))
