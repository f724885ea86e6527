"""Operators side by side as one: the same columns, from fewer operators."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hbtvm.operators.base import Input, Node, constant, evaluate, in_order
from hbtvm.operators.formulas import softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import Repeat, concat, reduce, select
from hbtvm.operators.tables import Interpolate
from hbtvm.operators.together import grouped_sum, side_by_side

ROWS = Input(4)


def network(rng: np.random.Generator, kind: str, width: int) -> Node:
    """A small network with its own weights."""
    product = apply("add", Contract(ROWS, rng.normal(size=(4, width))), rng.normal(size=width))
    match kind:
        case "linear":
            return product
        case "softmax":
            return softmax(product)
        case "binary":
            return with_complement(apply("sigmoid", select(product, [0])))
        case "scaled":
            # One number meets all columns.
            return apply(
                "where", apply("greater", reduce("sum", product), rng.normal()), product, rng.normal()
            )
        case "selected":
            return select(product, rng.permutation(width)[: max(1, width - 1)])
        case "steps":
            at = np.sort(rng.normal(size=(width, 5)), axis=1)
            return Interpolate(product, at, rng.normal(size=(width, 5)))
        case "repeated":
            return apply("less", Repeat(product, 2), Repeat(product, 2, tiled=True))
        case _:
            return constant(rng.normal(size=width))


def value_of(node: Node, x: np.ndarray) -> np.ndarray:
    (found,) = evaluate([node], lambda leaf: x)
    return np.broadcast_to(found, (len(x), node.width))


KINDS = ("linear", "softmax", "binary", "scaled", "selected", "steps", "repeated", "constant")


@pytest.mark.parametrize("seed", range(40))
def test_the_columns_are_those_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.choice(KINDS, 1 if seed % 2 else 3)
    parts = [network(rng, str(rng.choice(kinds)), int(rng.integers(1, 4))) for _ in range(rng.integers(1, 6))]
    if seed % 5 == 0:
        parts.append(parts[0])
    x = rng.normal(size=(9, 4))
    np.testing.assert_allclose(value_of(side_by_side(parts), x), value_of(concat(parts), x), rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 4))
    parts = [network(rng, str(rng.choice(("linear", "softmax", "scaled"))), width) for _ in range(4)]
    x = rng.normal(size=(9, 4))
    expected = sum(value_of(one, x) for one in parts)
    np.testing.assert_allclose(value_of(grouped_sum(parts), x), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "softmax", "binary", "scaled", "steps"])
def test_networks_of_one_form_have_one_product(kind: str) -> None:
    rng = np.random.default_rng(0)
    joined = side_by_side([network(rng, kind, 3) for _ in range(5)])
    kinds = Counter(node.kind for node in in_order(joined))
    alone = Counter(node.kind for node in in_order(network(rng, kind, 3)))
    assert kinds["contract"] == 1 and kinds["elementwise"] == alone["elementwise"]
