"""Passes on networks: the same values, within rounding, with fewer and smaller nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.passes import simplify
from hbtvm.operators.base import Constant, Input, Node, constant, evaluate, in_order
from hbtvm.operators.distances import Distance, Take, TopK
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract, LinearSum, Monomials
from hbtvm.operators.shapes import Concat, Reduce, Repeat, Select, select
from hbtvm.operators.tables import Bucketize, Interpolate, Lookup, OneHot, lookup

WIDTH = 5


def table_of(width: int = WIDTH) -> Table:
    return Table(tuple(Column(Raw(i)) for i in range(width)))


def values_of(outputs: list[Node], x: np.ndarray) -> list[np.ndarray]:
    def leaf(node: Node) -> np.ndarray:
        if isinstance(node, TableRows):
            return x[:, [column.source.index for column in node.table.columns]]  # type: ignore[union-attr]
        return x

    return [np.broadcast_to(one, (len(x), one.shape[1])) for one in evaluate(outputs, leaf)]


def kinds(*outputs: Node) -> list[str]:
    return sorted(node.kind for node in in_order(*outputs) if node.inputs)


def small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers, some of them 0."""
    return rng.normal(size=shape) * (rng.random(shape) < 0.7)


def grown(choose: random.Random, leaf: Node, steps: int) -> list[Node]:
    """A random network: nodes that read those before them."""
    rng = np.random.default_rng(choose.randrange(1 << 30))
    nodes: list[Node] = [leaf, constant(rng.normal(size=3))]

    def bucket(x: Node) -> Node:
        return Bucketize(x, np.sort(rng.normal(size=(x.width, 3)), axis=1), choose.choice(["left", "right"]))

    def codes(x: Node) -> Node:
        tables = [rng.normal(size=4) for _ in range(4)]
        return lookup(bucket(x), rng.integers(0, x.width, 4).tolist(), tables)

    def hot(x: Node) -> Node:
        return OneHot(bucket(x), rng.integers(0, x.width, 6).astype(np.int32), rng.integers(0, 4, 6) * 1.0)

    def points(x: Node) -> Node:
        return Interpolate(x, np.sort(rng.normal(size=(x.width, 4)), axis=1), rng.normal(size=(x.width, 4)))

    def groups(x: Node) -> Node:
        size = choose.choice([d for d in range(1, x.width + 1) if x.width % d == 0])
        return Reduce(choose.choice(["sum", "max", "min", "argmax"]), x, size)

    def pair(x: Node) -> Node:
        fits = [one for one in nodes if one.width in (1, x.width)]
        return apply(choose.choice(["add", "subtract", "multiply", "maximum"]), x, choose.choice(fits))

    def scaled(x: Node) -> Node:
        return apply(
            choose.choice(["add", "subtract", "multiply", "divide"]), x, rng.normal(size=x.width) + 3
        )

    makers: list[Callable[[Node], Node]] = [
        lambda x: Contract(x, small(rng, x.width, choose.randint(1, 4))),
        lambda x: Contract(x, small(rng, x.width, choose.randint(1, 4))),
        scaled,
        scaled,
        pair,
        lambda x: apply("tanh", x),
        lambda x: Select(x, rng.integers(0, x.width, choose.randint(1, 4)).astype(np.int32)),
        lambda x: Concat((x, *(choose.choice(nodes) for _ in range(choose.randint(1, 2))))),
        lambda x: Repeat(x, choose.randint(1, 2), choose.random() < 0.5),
        lambda x: Monomials(x, rng.integers(0, x.width + 1, (4, 3)).astype(np.int32)),
        groups,
        bucket,
        codes,
        hot,
        points,
        lambda x: Distance(x, rng.normal(size=(3, x.width))),
        lambda x: Take(TopK(Concat((x, x)), 2), rng.normal(size=(4, 2))),
    ]
    for _ in range(steps):
        x = choose.choice(nodes[-4:])
        made = choose.choice(makers)(x)
        nodes.append(made if made.width <= 24 else select(made, range(6)))
    return [apply("tanh", nodes[-1]), choose.choice(nodes[2:])]


@pytest.mark.parametrize("seed", range(150))
def test_random_networks_stay_the_same(seed: int) -> None:
    choose = random.Random(seed)
    leaf: Node = TableRows(table_of()) if seed % 2 else Input(WIDTH)
    outputs = grown(choose, leaf, choose.randint(3, 12))
    found, _ = simplify(outputs)
    assert [one.width for one in found] == [one.width for one in outputs]
    for node in in_order(*found):
        node.checked()
    x = np.random.default_rng(seed).normal(size=(20, WIDTH))
    for one, other in zip(values_of(found, x), values_of(outputs, x), strict=True):
        size = np.abs(other).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10 * size)


def simplified(node: Node) -> Node:
    return simplify([node])[0][0]


RNG = np.random.default_rng(0)
X = TableRows(table_of())


def test_projection_before_a_linear_model_is_one_product() -> None:
    projection = apply("subtract", Contract(X, RNG.normal(size=(5, 4))), RNG.normal(size=4))
    model = apply("add", Contract(apply("divide", projection, 3.0), RNG.normal(size=(4, 2))), [1.0, 2.0])
    found = simplified(model)
    assert kinds(found) == ["contract", "elementwise"]


def test_a_wide_product_stays_behind_a_narrow_one() -> None:
    found = simplified(Contract(Contract(X, RNG.normal(size=(5, 1))), RNG.normal(size=(1, 30))))
    assert kinds(found) == ["contract", "contract"]


def test_scales_are_weights_but_shifts_stay_in_front() -> None:
    scaler = apply("divide", apply("subtract", X, RNG.normal(size=5)), RNG.random(5) + 1)
    found = simplified(Contract(scaler, RNG.normal(size=(5, 2))))
    assert kinds(found) == ["contract", "elementwise"]
    shift = next(node for node in in_order(found) if node.kind == "elementwise")
    assert shift.attributes() == {"function": "subtract"}


def test_projections_side_by_side_are_one_product() -> None:
    union = Concat((Contract(X, RNG.normal(size=(5, 2))), Contract(X, RNG.normal(size=(5, 3))), X))
    found = simplified(Contract(union, RNG.normal(size=(10, 2))))
    assert kinds(found).count("contract") == 1
    assert max(node.width for node in in_order(found) if node.inputs) <= 6


def test_codes_of_one_hot_columns_are_sums_of_entries() -> None:
    bins = Bucketize(X, np.sort(RNG.normal(size=(5, 3)), axis=1))
    hot = OneHot(bins, np.repeat(np.arange(5), 4).astype(np.int32), np.tile(np.arange(4.0), 5))
    found = simplified(Contract(hot, RNG.normal(size=(20, 2))))
    assert isinstance(found, LinearSum) and kinds(found) == ["bucketize", "linear_sum"]


def test_columns_without_weight_are_not_read() -> None:
    weight = RNG.normal(size=(21, 1))
    weight[[0, 1, 2, 3, *range(5, 20)]] = 0
    factors = np.array(
        [[5, 5], *([i, 5] for i in range(5)), *([j, i] for i in range(5) for j in range(i + 1))]
    )
    found = simplified(Contract(Monomials(X, factors.astype(np.int32)), weight))
    (leaf,) = [node for node in in_order(found) if isinstance(node, TableRows)]
    monomials = [node for node in in_order(found) if isinstance(node, Monomials)]
    used = sorted({int(i) for row in np.flatnonzero(weight.ravel()) for i in factors[row] if i < 5})
    assert [column.source.index for column in leaf.table.columns] == used  # type: ignore[union-attr]
    assert monomials[0].width == 2


def test_selections_go() -> None:
    chosen = Select(
        Concat((Select(X, np.array([1, 3], np.int32)), Select(X, np.array([0], np.int32)))),
        np.array([2, 0], np.int32),
    )
    found = simplified(apply("tanh", chosen))
    (leaf,) = [node for node in in_order(found) if isinstance(node, TableRows)]
    assert leaf.width == 2 and kinds(found) == ["elementwise"]


def test_products_of_the_same_columns_are_one() -> None:
    pair = [apply("exp", Contract(X, RNG.normal(size=(5, n)))) for n in (2, 3)]
    found = simplified(Concat(tuple(pair)))
    assert kinds(found).count("contract") == 1


def test_equal_nodes_are_one_and_constants_are_computed() -> None:
    twice = [apply("exp", apply("multiply", X, apply("exp", constant(2.0)))) for _ in range(2)]
    found = simplified(apply("add", *twice))
    assert kinds(found) == ["elementwise"] * 3
    assert simplified(apply("exp", constant([1.0, 2.0]))).kind == "constant"


def test_what_is_told() -> None:
    _, told = simplify([Contract(Contract(X, np.eye(5)[:, :3]), RNG.normal(size=(3, 1)))])
    assert told and all(isinstance(one, str) for one in told)
    assert simplify([X])[1] == []


def test_lookups_keep_the_entries_that_are_read() -> None:
    codes = Bucketize(X, np.sort(RNG.normal(size=(5, 2)), axis=1))
    tables: list[Any] = [RNG.normal(size=3) for _ in range(4)]
    found = simplified(apply("exp", Select(lookup(codes, [0, 1, 2, 3], tables), np.array([2], np.int32))))
    (own,) = [node for node in in_order(found) if isinstance(node, Lookup)]
    assert own.entries.tolist() == tables[2].tolist()
    assert not any(isinstance(node, Constant) for node in in_order(found))
