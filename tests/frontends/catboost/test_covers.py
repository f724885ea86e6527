"""Weights and numbers of leaves against CatBoost: live, from ``.cbm`` and from JSON.

CatBoost numbers the leaves of trees that are not symmetric anew when it reads a JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.frontends import from_object, load_model
from tests.by_reference import leaf_numbers, matrix
from tests.covers import assert_sums, leaf_covers
from tests.models import data, targets

catboost = pytest.importorskip("catboost")

X, Y = data()
COMMON: dict[str, Any] = {
    "iterations": 4, "depth": 4, "verbose": 0, "thread_count": 1, "random_seed": 1,
    "allow_writing_files": False,
}  # fmt: skip


def _sources(model: Any, folder: Path) -> list[tuple[Any, Any]]:
    """Return models of CatBoost, each with the same model as hbtvm reads it."""
    pairs = [(model, from_object(model))]
    for kind in ("cbm", "json"):
        path = folder / f"model.{kind}"
        model.save_model(str(path), format=kind)
        pairs.append((catboost.CatBoost().load_model(str(path), format=kind), load_model(path)))
    return pairs


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise", "Lossguide"])
@pytest.mark.parametrize("classes", [False, True])
def test_trees(policy: str, classes: bool, tmp_path: Path) -> None:
    options = {**COMMON, "grow_policy": policy}
    if policy != "SymmetricTree":
        options["min_data_in_leaf"] = 20
    kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
    rows = data(missing=True)[0]
    weights = np.random.default_rng(0).integers(1, 4, len(rows))
    model = kind(**options).fit(rows, targets("three" if classes else "real"), sample_weight=weights)
    for theirs, graph in _sources(model, tmp_path):
        trees = graph.anchor
        np.testing.assert_array_equal(
            leaf_numbers(trees, rows.astype(np.float32)), theirs.calc_leaf_indexes(rows)
        )
        assert_sums(trees)
        np.testing.assert_allclose(trees.cover[trees.offset[:-1]], weights.sum(), rtol=1e-6)
        if not classes:  # CatBoost 1.2 fails here for several classes
            counts = theirs.get_tree_leaf_counts()
            expected = np.split(theirs.get_leaf_weights(), np.cumsum(counts)[:-1])
            for tree, weight in enumerate(expected):
                np.testing.assert_array_equal(leaf_covers(trees, tree), weight)


def test_categories(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": X[:, 0], "c": [f"c{int(c)}" for c in X[:, 2]], "z": X[:, 3]})
    for most in (2, 30):
        model = catboost.CatBoostRegressor(**COMMON, cat_features=["c"], one_hot_max_size=most).fit(frame, Y)
        for theirs, graph in _sources(model, tmp_path):
            found = leaf_numbers(graph.anchor, matrix(graph, frame))
            np.testing.assert_array_equal(found, theirs.calc_leaf_indexes(frame))
            assert_sums(graph.anchor)


def test_weights_in_the_file(tmp_path: Path) -> None:
    model = catboost.CatBoostRegressor(**COMMON).fit(X, Y)
    path = tmp_path / "model.json"
    model.save_model(str(path), format="json")
    document = json.loads(path.read_text())
    trees = load_model(path).anchor
    for tree, stored in enumerate(document["oblivious_trees"]):
        np.testing.assert_array_equal(leaf_covers(trees, tree), stored["leaf_weights"])
    for damaged in ([1.0], [-1.0] * 16, None, ["?"] * 16, {}):
        document["oblivious_trees"][1]["leaf_weights"] = damaged
        path.write_text(json.dumps(document))
        again = load_model(path).anchor
        assert again.cover is None
        np.testing.assert_array_equal(again.value, trees.value)
        np.testing.assert_array_equal(again.leaf_id, trees.leaf_id)
