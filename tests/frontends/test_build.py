"""Trees put together: unreachable nodes, shared sets, broken links, rounded thresholds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import Tree, assemble
from hbtvm.graph.trees import reference
from hbtvm.graph.trees.ensemble import CategorySet, TreeEnsemble
from hbtvm.graph.trees.rounding import float32_at_most, float32_below

# Node 3 is one that no path reaches.
STUMP = Tree(
    feature=np.array([1, 9, 9, 9, 9]),
    threshold=np.array([0.5, 0, 0, 0, 0]),
    left=np.array([2, -1, -1, 1, -1]),
    right=np.array([4, -1, -1, 2, -1]),
    default_left=np.array([True, False, False, False, False]),
    value=np.array([[9.0], [9.0], [1.0], [9.0], [2.0]]),
)


def _put(*trees: Tree) -> TreeEnsemble:
    return assemble(
        trees,
        n_features=2,
        compare_dtype="float64",
        tree_output=np.zeros(len(trees)),
        base_score=[10.0],
    )


def test_nodes_that_no_row_reaches_are_left_out() -> None:
    forest = _put(STUMP, STUMP)
    assert forest.n_nodes == 6
    found = reference.margins(forest, np.array([[0, 0.5], [0, 0.6], [0, np.nan]]))
    np.testing.assert_array_equal(found, [[12], [14], [12]])


def test_children_may_come_before_their_parent() -> None:
    tree = Tree(
        feature=np.array([0, 9, 1, 9, 9]),
        threshold=np.array([0.5, 0, 0.5, 0, 0]),
        left=np.array([2, -1, 1, -1, -1]),
        right=np.array([3, -1, 4, -1, -1]),
        default_left=np.zeros(5, bool),
        value=np.array([[9.0], [1.0], [9.0], [2.0], [4.0]]),
    )
    forest = _put(tree)
    assert forest.n_nodes == 5
    found = reference.margins(forest, np.array([[0, 0], [0, 1], [1, 0.0]]))
    np.testing.assert_array_equal(found, [[11], [14], [12]])


def test_equal_sets_are_kept_once() -> None:
    member = np.array([True, False, True])
    trees = [
        replace(STUMP, categories={0: CategorySet(member.copy())}),
        replace(STUMP, categories={0: CategorySet(member.copy())}),
        replace(STUMP, categories={0: CategorySet(member.copy(), outside_left=True)}),
    ]
    forest = _put(*trees)
    assert len(forest.category_sets) == 2
    found = reference.margins(forest, np.array([[0, 2.0], [0, 1.0], [0, 7.0]]))
    np.testing.assert_array_equal(found[:, 0], [13, 16, 15])


def test_no_trees() -> None:
    with pytest.raises(UnsupportedModel, match="no trees"):
        _put()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("left", [0, -1, -1, -1, -1]),
        ("left", [4, -1, -1, -1, -1]),
        ("left", [7, -1, -1, -1, -1]),
        ("right", [-2, -1, -1, -1, -1]),
        ("feature", [2, 0, 0, 0, 0]),
        ("feature", [-3, 0, 0, 0, 0]),
        ("threshold", [np.nan, 0, 0, 0, 0]),
        ("value", [[0], [0], [np.inf], [0], [0]]),
    ],
)
def test_broken_trees_are_model_errors(name: str, values: list[object]) -> None:
    with pytest.raises(ModelError, match="don't fit together"):
        _put(replace(STUMP, **{name: np.array(values)}))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(threshold=st.floats(allow_nan=False), x=st.floats(width=32, allow_nan=False))
def test_rounded_thresholds_decide_alike_in_float32(threshold: float, x: float) -> None:
    with np.errstate(over="ignore"):
        neighbours = np.nextafter(np.float32(x), np.array([-np.inf, np.inf], np.float32))
    for near in (np.float32(x), *neighbours):
        cut = float32_at_most(np.array([threshold]))[0]
        assert np.float32(cut) == cut
        assert (float(near) <= threshold) == (near <= np.float32(cut))
        with np.errstate(over="ignore"):
            single = np.float32(threshold)
        if single > -np.inf:
            below = float32_below(np.array([single]))[0]
            assert (near < single) == (near <= np.float32(below))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(x=st.floats(width=32, allow_nan=False))
def test_a_threshold_that_is_the_value(x: float) -> None:
    assert float32_at_most(np.array([float(np.float32(x))]))[0] == np.float32(x)


COVER = np.array([5.0, 9, 2, 9, 3])


def test_covers_and_numbers_follow_the_nodes() -> None:
    tree = replace(STUMP, cover=COVER, leaf_id=np.array([8, 8, 7, 8, 0]))
    forest = _put(tree, tree)
    np.testing.assert_array_equal(forest.cover, [5, 2, 3] * 2)
    np.testing.assert_array_equal(forest.leaf_id, [0, 7, 0] * 2)


def test_covers_of_some_trees_are_none() -> None:
    forest = _put(replace(STUMP, cover=COVER), STUMP)
    assert forest.cover is None and forest.leaf_id is None


@pytest.mark.parametrize(
    "cover",
    [
        pytest.param([-5, 9, 2, 9, 3], id="a split is negative"),
        pytest.param([5, 9, -2, 9, 3], id="a leaf is negative"),
        pytest.param([5, 9, np.nan, 9, 3], id="a leaf is NaN"),
        pytest.param([5, 9, 2, 9, np.inf], id="a leaf is infinite"),
        pytest.param([np.inf, 9, 2, 9, 3], id="a split is infinite"),
        pytest.param([1, 9, 2, 9, 3], id="a leaf has more than its parent"),
        pytest.param([0, 9, 2, 9, 3], id="a split has none"),
    ],
)
def test_impossible_covers_are_none(cover: list[float]) -> None:
    tree = replace(STUMP, cover=COVER)
    forest = _put(tree, replace(STUMP, cover=np.array(cover)))
    assert forest.cover is None
    np.testing.assert_array_equal(reference.margins(forest, np.array([[0, 0.5]])), [[12]])


@pytest.mark.parametrize("cover", [[5, 9, 2, 9, 3], [0, 9, 0, 9, 0], [3, 9, 0, 9, 3], [4.9, 9, 2, 9, 3]])
def test_possible_covers_stay(cover: list[float]) -> None:
    forest = _put(replace(STUMP, cover=np.array(cover, np.float64)))
    np.testing.assert_array_equal(forest.cover, [cover[0], cover[2], cover[4]])


def test_covers_of_splits_are_sums() -> None:
    #      0
    #    1   2
    #   3 4
    tree = Tree(
        feature=np.zeros(5, np.int64),
        threshold=np.zeros(5),
        left=np.array([1, 3, -1, -1, -1]),
        right=np.array([2, 4, -1, -1, -1]),
        default_left=np.zeros(5, bool),
        value=np.zeros((5, 1)),
        cover=np.array([np.nan, np.nan, 1, 2, 4]),
    )
    leaf = replace(
        STUMP, feature=np.zeros(1), threshold=np.zeros(1), left=np.full(1, -1), right=np.full(1, -1)
    )
    leaf = replace(leaf, default_left=np.zeros(1, bool), value=np.zeros((1, 1)), cover=np.array([9.0]))
    known = replace(tree, cover=np.array([7.5, np.nan, 1, 2, 4]))
    np.testing.assert_array_equal(_put(tree, leaf, known).cover, [7, 6, 1, 2, 4, 9, 7.5, 6, 1, 2, 4])
