"""Networks that round as float32 does, computed in float32; scores of both types stored by rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, select
from hbtvm.operators.tables import Bucketize, OneHot
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_network
from hbtvm.strategies.network.single import singles
from tests import networks

F = networks.F


def rounded(function: str, *operands: Node | float | np.ndarray) -> Node:
    """A function as float32 computes it."""
    return apply("round_float32", apply(function, *operands))


def constants(seed: int, width: int) -> np.ndarray:
    """Numbers that float32 holds."""
    return np.random.default_rng(seed).normal(size=width).astype(np.float32).astype(np.float64)


def config(lanes: int, axis: str = "rows", vectors: int = 2) -> Config:
    """One of each kind of vectors."""
    shared: Config = {"block": 0, "unroll": 1, "distances": "direct", "output_tile": 1, "lanes": lanes}
    tile = lanes * vectors if axis == "rows" else 1
    return {**shared, "axis": axis, "row_tile": tile, "vectors": vectors}


@pytest.mark.parametrize(
    ("width", "lanes", "scores"),
    [
        *itertools.product((2, 3, 5, 7, 8, 9, 20, 64, 71), (8,), ("float32",)),
        *itertools.product((1, 2, 3, 7, 13), (4,), ("float32", "float64")),
        *itertools.product((3, 8, 50), (8,), ("float64",)),
    ],
)
def test_scores_of_any_width_are_stored_by_rows(width: int, lanes: int, scores: str) -> None:
    places = np.random.default_rng(width).integers(0, F, width).astype(np.int32)
    network = Network(F, apply("multiply", select(Input(F), places), constants(0, width)))
    X = networks.rows(83, "float32")
    found = networks.run(network, config(lanes), X, scores=scores, narrow=True)  # type: ignore[arg-type]
    assert found.dtype == scores
    np.testing.assert_array_equal(found, network.reference(X).astype(scores))


def chain(x: Node) -> Node:
    """Each function once that float32 computes as float64 rounded does."""
    a = rounded("subtract", x, constants(1, F))
    b = rounded("divide", a, np.abs(constants(2, F)) + 2.0)
    c = rounded("add", rounded("multiply", b, constants(3, F)), constants(4, F))
    d = apply("where", apply("isnan", c), constants(5, F), apply("maximum", apply("minimum", c, 0.75), -0.25))
    root = rounded("sqrt", apply("absolute", c))
    flags = concat(
        [apply(name, b, a) for name in ("less", "less_equal", "greater", "greater_equal", "equal")]
    )
    return concat([c, d, root, apply("negative", c), apply("relu", c), flags])


@pytest.mark.parametrize("axis", ["rows", "outputs"])
@pytest.mark.parametrize("scores", ["float32", "float64"])
def test_arithmetic_in_float32_is_that_of_float64_rounded(axis: str, scores: str) -> None:
    network = Network(F, chain(Input(F)))
    X = (networks.rows(211) * 10.0 ** np.random.default_rng(7).integers(-30, 30, (211, F))).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        found = networks.run(network, config(8, axis), X, scores=scores, narrow=True)  # type: ignore[arg-type]
        np.testing.assert_array_equal(found, network.reference(X))


def test_what_is_not_rounded_stays_in_float64() -> None:
    x = Input(F)
    product = Contract(x, np.random.default_rng(8).normal(size=(F, 3)))
    odd = apply("add", x, 0.1)
    mixed = [apply("round_float32", product), apply("multiply", rounded("add", x, 0.5), 3.0), odd, x]
    tables = [Bucketize(x, np.sort(np.random.default_rng(9).normal(size=(F, 4)), axis=1))]
    tables.append(OneHot(x, np.array([5, 6], np.int32), np.array([1.0, 2.0])))
    network = Network(F, concat([*mixed, *tables]))
    nodes = network.nodes
    own = singles(nodes)
    names = {str(getattr(nodes[at], "function", nodes[at].kind)) for at in own}
    assert names == {"input", "constant", "add", "round_float32", "bucketize", "one_hot"}
    # Of the two sums, the one that is rounded.
    assert [node is odd for at, node in enumerate(nodes) if at in own and node.kind == "elementwise"] == [
        False
    ] * 3
    X = networks.rows(50, "float32")
    found = networks.run(network, config(8), X, narrow=True)
    np.testing.assert_allclose(found, network.reference(X), rtol=1e-14)


def test_networks_that_round_nothing_are_as_before() -> None:
    operand = make_network(networks.network("softmax"), "float32", narrow=True)
    assert not any("single" in node for node in operand.nodes)
    assert "scores" not in operand.workload(100)
    assert operand.workload(100) == make_network(networks.network("softmax"), "float32").workload(100)
