"""Hit rates of nodes, which only some files have, and the files' numbers of leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from hbtvm.frontends import from_object
from tests.by_reference import leaf_numbers
from tests.covers import assert_sums
from tests.frontends.onnx.models import model, node, trees
from tests.models import data

X, Y = data()


def _graph(**more: Any) -> tuple[Any, dict[str, Any]]:
    attributes = {**trees(1, count=3, depth=3, missing=True), **more}
    operation = node("TreeEnsembleRegressor", ["X"], ["variable"], "ai.onnx.ml", **attributes, n_targets=1)
    file = model([operation], {"variable": "float"}, inputs={"X": ("float", [None, 3])})
    return from_object(file), attributes


def test_hit_rates() -> None:
    plain, attributes = _graph()
    count = len(attributes["nodes_nodeids"])
    assert plain.anchor.cover is None
    rates = _halved(attributes)
    found = _graph(nodes_hitrates=rates)[0].anchor
    assert found.n_nodes == count
    pairs = zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True)
    rate = dict(zip(pairs, rates, strict=True))
    tree = np.repeat(np.arange(found.n_trees), np.diff(found.offset)).tolist()
    for at in np.flatnonzero(found.is_leaf()).tolist():
        assert found.cover[at] == rate[tree[at], int(found.leaf_id[at])]
    assert_sums(found)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_same_for_all_is_none(rate: float) -> None:
    count = len(_graph()[1]["nodes_nodeids"])
    assert _graph(nodes_hitrates=[rate] * count)[0].anchor.cover is None


def test_numbers_of_a_forest() -> None:
    convert = pytest.importorskip("skl2onnx")
    forest = RandomForestRegressor(4, max_depth=4, random_state=0).fit(X, Y)
    narrow = X.astype(np.float32)
    found = from_object(convert.to_onnx(forest, narrow[:1])).anchor
    assert found.cover is None
    np.testing.assert_array_equal(leaf_numbers(found, narrow), forest.apply(narrow))


@pytest.mark.parametrize("aggregate", ["MIN", "MAX"])
def test_trees_one_by_one(aggregate: str) -> None:
    attributes = trees(1, count=3, depth=3, missing=True)
    graph, _ = _graph(nodes_hitrates=_halved(attributes), aggregate_function=aggregate)
    (stage,) = graph.stages
    assert sorted(stage.anchor.cover.tolist()) == sorted(_halved(attributes))
    assert_sums(stage.anchor)


def _halved(attributes: dict[str, Any]) -> list[float]:
    """Return hit rates that halve from a node to its children."""
    keys = list(zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True))
    place = {key: at for at, key in enumerate(keys)}
    rates = [1.0] * len(keys)
    for at, (tree, _) in enumerate(keys):  # parents come first
        if attributes["nodes_modes"][at] != "LEAF":
            for child in (attributes["nodes_truenodeids"][at], attributes["nodes_falsenodeids"][at]):
                rates[place[tree, child]] = rates[at] / 2
    return rates
