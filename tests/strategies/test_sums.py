"""Sums that are read in registers, blocks of terms, tiles of outputs, and exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input, Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.runtime.cpu import vector_bits
from hbtvm.schedules.network.nodes import in_register_blocks
from hbtvm.schedules.network.plan import plan, read_in_registers
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_network, strategies_on, workload_of
from tests import networks
from tests.kernels import CPU

AVX2 = resolve({"kind": "llvm", "mcpu": "x86-64-v3"})
TARGETS = [CPU, AVX2] if vector_bits(set(CPU["features"])) == 512 else [CPU]
F = 6

ROWS: Config = {
    "axis": "rows", "row_tile": 32, "lanes": 8, "vectors": 2, "output_tile": 4, "block": 0, "unroll": 2,
    "distances": "direct",
}  # fmt: skip


def network(output: Any, features: int = F) -> Network:
    return Network(features, output(Input(features)))


def powers(x: Node) -> Node:
    return apply("exp", x)


def test_exponentials() -> None:
    """Of every size that float64 holds, and of what it does not."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.uniform(-708.3, 709.78, 20_000),
            rng.normal(size=20_000),
            rng.normal(size=2_000) * 1e-8,
            np.log(2) / 32 * np.arange(-400, 400),
        ]
    )
    x = np.concatenate([x, np.zeros(-len(x) % 8)]).reshape(-1, 8)
    edge = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, -750.0, 709.7827, 709.7828]])
    for target in TARGETS:
        for lanes in {4, int(target["vector_bits"]) // 64}:
            got = networks.run(
                network(powers, 8), {**ROWS, "lanes": lanes}, np.vstack([x, edge]), target=target
            )
            np.testing.assert_allclose(got[:-1], np.exp(x), rtol=4e-14, atol=5e-308)
            moderate = np.abs(x) < 50
            np.testing.assert_allclose(got[:-1][moderate], np.exp(x[moderate]), rtol=1e-14)
            np.testing.assert_array_equal(got[-1, :6], [1, 1, np.nan, np.inf, 0, 0])
            assert np.isclose(got[-1, 6], np.exp(edge[0, 6]), rtol=1e-13) and np.isinf(got[-1, 7])
    alone = networks.run(network(powers, 8), networks.default(network(powers, 8), 1), x[:3], 1)
    np.testing.assert_allclose(alone, np.exp(x[:3]), rtol=4e-14)


def layers(outputs: int, function: str = "relu") -> Any:
    """A layer of 100 numbers, then of so many."""
    rng = np.random.default_rng(outputs)

    def make(x: Node) -> Node:
        hidden = apply(function, apply("add", Contract(x, rng.normal(size=(F, 100))), rng.normal(size=100)))
        return apply("add", Contract(hidden, rng.normal(size=(100, outputs))), rng.normal(size=outputs))

    return make


def machine(outputs: int) -> Any:
    """Sums of radial kernels."""
    rng = np.random.default_rng(outputs)
    points = rng.normal(size=(203, F))

    def make(x: Node) -> Node:
        kernel = apply("exp", apply("multiply", Distance(x, points), -0.3))
        return Contract(kernel, rng.normal(size=(203, outputs)))

    return make


def check(made: Network, config: Config, target: Any = CPU, dtype: str = "float64") -> None:
    X = np.random.default_rng(3).normal(size=(75, F)).astype(dtype)
    got = networks.run(made, config, X, target=target)
    np.testing.assert_allclose(got, made.reference(X), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("outputs", [1, 3, 10])
@pytest.mark.parametrize("block", [0, 4, 8])
def test_layers(outputs: int, block: int) -> None:
    made = network(layers(outputs, "sigmoid" if block == 4 else "relu"))
    check(made, {**ROWS, "block": block, "vectors": 4})


@pytest.mark.parametrize("block", [0, 4, 16])
@pytest.mark.parametrize(("outputs", "dtype"), [(2, "float32"), (9, "float64")])
def test_kernels(outputs: int, dtype: str, block: int) -> None:
    made = network(machine(outputs))
    for distances in ("direct", "expanded"):
        check(made, {**ROWS, "block": block, "distances": distances}, dtype=dtype)


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: str(one["vector_bits"]))
def test_default_configurations(target: Any) -> None:
    for made in (network(layers(1)), network(machine(3))):
        operand = make_network(made, "float64")
        strategy = strategies_on(target, operand.family)["fused"]
        check(made, strategy.default(workload_of(operand, 1000), target), target)


def planned(made: Network, config: Config) -> Any:
    return plan({**workload_of(make_network(made, "float64"), 1000)}, config)


def test_which_sums_stay_in_registers() -> None:
    made = planned(network(layers(3)), ROWS)
    (pair,) = read_in_registers(made).items()
    assert [made.stages[at].form["kind"] for at in pair] == ["contract", "elementwise"]
    assert not read_in_registers(planned(network(layers(3)), {**ROWS, "axis": "outputs", "row_tile": 1}))

    def twice(x: Node) -> Node:
        total = Contract(x, np.ones((F, 20)))
        return Contract(apply("multiply", total, apply("exp", total)), np.ones((20, 3)))

    assert not read_in_registers(planned(network(twice), ROWS)), "two read it"
    check(network(twice), ROWS)


def test_blocks_in_registers_are_of_products_of_few_outputs() -> None:
    few, many = (make_network(network(layers(n)), "float64").nodes for n in (4, 5))
    assert in_register_blocks(few) and not in_register_blocks(many)


def test_outputs_of_a_tile_are_padded_little() -> None:
    for outputs, room in ((1, 1), (3, 3), (4, 4), (7, 8), (10, 10)):
        made = planned(network(layers(outputs)), {**ROWS, "vectors": 4})
        assert next(stage.room for stage in made.stages if stage.form["width"] == outputs) == room
