"""Trees of more leaves than a word has bits: cut into pieces, whose sums are the trees'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm.graph.trees.reference import margins
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.strategies.trees.pieces import cut
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, raw_scores, tolerance

BITVECTOR = STRATEGIES["bitvector"]


@pytest.mark.parametrize("leaves", [1, 32, 33, 64, 128])
def test_each_leaf_is_in_one_piece(leaves: int) -> None:
    ensemble = random_ensemble(np.random.default_rng(leaves), trees=12, max_leaves=leaves, groups=3)
    forest = make_forest(ensemble, "float32", "float32")
    pieces = cut(forest, 32)
    assert np.diff(pieces.offset).max() <= 63
    np.testing.assert_array_equal(
        np.sort(pieces.group_trees[pieces.group_trees >= 0]), range(len(pieces.offset) - 1)
    )
    for whole, parts in zip(forest.group_trees, pieces.group_trees, strict=True):
        leaf_values = [
            np.concatenate([f.value[f.offset[t] : f.offset[t + 1]] for t in trees[trees >= 0]])
            for f, trees in ((forest, whole), (pieces, parts))
        ]
        one, other = (np.sort(values[values != 0]) for values in leaf_values)
        np.testing.assert_array_equal(one, other)


def test_pieces_are_full() -> None:
    """A piece takes several small subtrees, and earlier pieces' subtrees are one leaf of the next ones."""
    ensemble = random_ensemble(np.random.default_rng(1), trees=40, max_leaves=128)
    forest = make_forest(ensemble, "float32", "float32")
    pieces, leaves = cut(forest, 32), ensemble.leaves_per_tree()
    least = np.ceil(leaves / 32).sum()
    assert least < len(pieces.offset) - 1 <= 1.4 * least


@pytest.mark.parametrize("leaves", [64, 128])
@pytest.mark.parametrize("missing", ["mixed", "zero"])
@pytest.mark.parametrize("shape", [{"trees": 9, "groups": 3}, {"trees": 7, "width": 2}], ids=str)
def test_pieces_sum_to_trees(shape: dict[str, Any], missing: str, leaves: int) -> None:
    rng = np.random.default_rng(7)
    ensemble = random_ensemble(rng, max_leaves=leaves, missing=missing, categories=True, **shape)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 300, "float32")
    config = BITVECTOR.default(workload_of(forest, 300), CPU)
    (mask,) = (a for a in BITVECTOR.signature(workload_of(forest, 300), config).arguments if a.name == "mask")
    assert mask.dtype == "int32"
    got = raw_scores("bitvector", ensemble, forest, config, X, 300)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_few_rows_take_pieces_of_large_trees() -> None:
    rng = np.random.default_rng(6)
    ensemble = random_ensemble(rng, trees=20, max_leaves=100)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 3, "float32")
    config = BITVECTOR.default(workload_of(forest, 3), CPU)
    assert config["axis"] == "trees"
    got = raw_scores("bitvector", ensemble, forest, config, X, 3)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_trees_that_are_not_cut_are_refused() -> None:
    rng = np.random.default_rng(5)
    for most, options in (
        (64, {"chain": True, "max_leaves": 70}),
        (64, {"groups": 16, "max_leaves": 70}),
        (128, {"max_leaves": 129}),
    ):
        ensemble = random_ensemble(rng, trees=16, **options)
        workload = workload_of(make_forest(ensemble, "float32", "float32"), 100)
        assert str(BITVECTOR.refuse(workload)).endswith(f"bitvector holds at most {most}")


@pytest.mark.parametrize("parallel", ["rows", "trees"])
def test_threads_share_pieces(parallel: str) -> None:
    rng = np.random.default_rng(8)
    ensemble = random_ensemble(rng, trees=40, max_leaves=50)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 1000, "float32")
    config = {
        **BITVECTOR.default(workload_of(forest, 1000, threads=2), CPU),
        "parallel": parallel,
        "grain": 1,
    }
    got = raw_scores("bitvector", ensemble, forest, config, X, 1000, threads=2)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_long_paths_keep_words_of_64_bits() -> None:
    """Each piece would repeat most of the path."""
    rng = np.random.default_rng(9)
    ensemble = random_ensemble(rng, trees=3, max_leaves=60, chain=True)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 200, "float32")
    config = BITVECTOR.default(workload_of(forest, 200), CPU)
    got = raw_scores("bitvector", ensemble, forest, config, X, 200)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))
