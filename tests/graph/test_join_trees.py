"""Forests over the same rows as one forest: the same outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.networks import join_trees, joined
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.networks.scope import simplified
from hbtvm.operators.base import Node, evaluate, in_order
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, select
from tests.ensembles import random_ensemble

COLUMNS = tuple(Column(Raw(i)) for i in range(6))
X = np.random.default_rng(1).choice([np.nan, -1.0, 0.0, 0.4, 1.0, 2.5, 7.0], size=(200, 6))


def forest(
    rng: np.random.Generator, features: int = 4, width: int = 1, divisor: float = 0.0, **options: object
) -> Trees:
    """A random forest over some of the columns; of a random divisor by default."""
    ensemble = random_ensemble(rng, features=features, width=width, missing="mixed", **options)  # type: ignore[arg-type]
    ensemble = replace(ensemble, divisor=divisor or ensemble.divisor, negative_fraction_is_zero=False)
    chosen = rng.permutation(6)[:features]
    table = Table(tuple(COLUMNS[i] for i in chosen))
    return Trees(TableRows(table, True, True), ensemble)


def value_of(node: Node) -> np.ndarray:
    evaluator = Evaluator(list(X.T))
    (found,) = evaluate([node], lambda leaf: evaluator.table(leaf.table))  # type: ignore[attr-defined]
    return found


def forests_in(node: Node) -> list[Trees]:
    return [one for one in in_order(node) if isinstance(one, Trees)]


@pytest.mark.parametrize("seed", range(12))
def test_outputs_side_by_side(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [forest(rng, int(rng.integers(1, 6)), 2, groups=1 + seed % 2, categories=True) for _ in range(3)]
    expected = np.concatenate([value_of(one) for one in parts], axis=1)
    made = join_trees.side_by_side(parts)
    assert made is not None and len(forests_in(made)) == 1
    np.testing.assert_allclose(value_of(made), expected, rtol=1e-12)
    total = apply("add", apply("multiply", parts[0], 2.0), apply("subtract", parts[1], parts[2]))
    assert len(forests_in(simplified(total))) == 1
    np.testing.assert_allclose(value_of(simplified(total)), value_of(total), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_means(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [forest(rng, 5, 3) for _ in range(4)]
    expected = np.mean([value_of(one) for one in parts], axis=0)
    made = joined.mean(parts)
    same = [replace(one.ensemble, divisor=4.0) for one in parts]
    assert isinstance(
        joined.mean([one.on_ensemble(own) for one, own in zip(parts, same, strict=True)]), Trees
    )
    np.testing.assert_allclose(value_of(made), expected, rtol=1e-12, atol=1e-12)
    weights = rng.uniform(0.5, 2, 4)
    expected = np.average([value_of(one) for one in parts], axis=0, weights=weights)
    np.testing.assert_allclose(value_of(joined.mean(parts, weights)), expected, rtol=1e-12, atol=1e-12)


def test_forests_that_see_rows_differently_stay_apart() -> None:
    rng = np.random.default_rng(0)
    one, other = forest(rng), forest(rng)
    wide = forest(rng, compare_dtype="float64")
    assert isinstance(other.x, TableRows)
    strict = Trees(TableRows(other.x.table, False, False), other.ensemble)
    for second in (wide, strict, forest(rng, width=2)):
        assert join_trees.side_by_side([one, second]) is None
        both = concat([one, second])
        assert len(forests_in(simplified(both))) == 2


@pytest.mark.parametrize("seed", range(6))
def test_outputs_that_nothing_reads_go(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [forest(rng, 4, 3, 5.0), forest(rng, 3, 3, 5.0)]
    seconds = joined.side_by_side([select(one, [1]) for one in parts])
    made = simplified(apply("add", seconds, 1.0))
    (left,) = forests_in(made)
    assert left.ensemble.value_width == 1 and left.width == 2
    expected = 1 + np.concatenate([value_of(one)[:, 1:2] for one in parts], axis=1)
    np.testing.assert_allclose(value_of(made), expected, rtol=1e-12)
    # An output that is read by itself stays.
    (left,) = forests_in(simplified(concat([select(parts[0], [1]), parts[0]])))
    assert left.width == 3


def test_equal_nodes_become_one() -> None:
    rng = np.random.default_rng(0)
    one = forest(rng)
    assert isinstance(one.x, TableRows)
    again = Trees(TableRows(Table(one.x.table.columns), True, True), one.ensemble)
    first, second = joined.unified([apply("exp", one), apply("exp", again)])
    assert first is second
    first, second = joined.unified([apply("exp", one), apply("log", again)])
    assert first is not second and first.inputs[0] is second.inputs[0]
