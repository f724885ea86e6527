"""Trees without decided splits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hbtvm.graph.trees.prune import LEFT, OPEN, RIGHT, prune
from hbtvm.graph.trees.reference import leaves
from tests.ensembles import random_ensemble, random_rows


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("chain", [False, True])
def test_rows_reach_the_leaves_that_decided_splits_lead_to(share: float, chain: bool) -> None:
    rng = np.random.default_rng(4)
    trees = random_ensemble(rng, trees=6, max_leaves=40, missing="mixed", categories=True, chain=chain)
    split = ~trees.is_leaf()
    decided = np.where(rng.random(trees.n_nodes) < 0.5, LEFT, RIGHT)
    decided = np.where(split & (rng.random(trees.n_nodes) < share), decided, OPEN).astype(np.int8)
    pruned, kept = prune(trees, decided)
    pruned.validate()
    assert not np.any(decided[kept] != OPEN)
    # The same trees where decided splits lead to one child by whatever they compare.
    one_way = replace(
        trees,
        left=np.where(decided == RIGHT, trees.right, trees.left),
        right=np.where(decided == LEFT, trees.left, trees.right),
    )
    X = random_rows(rng, trees, 300, "float32")
    expected = leaves(one_way, X) + trees.offset[:-1]
    got = kept[leaves(pruned, X) + pruned.offset[:-1]]
    assert np.array_equal(got, expected)
    reachable = np.unique(expected)
    assert set(reachable) <= set(kept[pruned.is_leaf()].tolist())
    assert (pruned.n_nodes == trees.n_trees) == (share == 1.0)
