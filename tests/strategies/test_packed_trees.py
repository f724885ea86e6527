"""Trees of any depth: how nodes are packed, and walks that end when all have arrived."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from hbtvm.compiler.lowering.rewrites import rewrite_loops
from hbtvm.compiler.targets.target import resolve
from hbtvm.frontends.files import load_model
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.strategies import STRATEGIES, Forest, make_forest, workload_of
from hbtvm.strategies.base import leaf_ranges
from hbtvm.strategies.trees import packed as packing
from hbtvm.strategies.trees.forest import DType
from hbtvm.strategies.trees.packed import Slots, pack
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, raw_scores, tolerance

WALK = STRATEGIES["tree_traversal"]
V4 = resolve({"kind": "llvm", "mcpu": "x86-64-v4"})


def forest_of(seed: int = 0, dtype: DType = "float32", **shape: object) -> Forest:
    ensemble = random_ensemble(np.random.default_rng(seed), compare_dtype=dtype, **shape)  # type: ignore[arg-type]
    return make_forest(ensemble, dtype, dtype)


@pytest.mark.parametrize("line", [2, 4, 8])
@pytest.mark.parametrize("chain", [False, True])
def test_every_node_has_a_slot_behind_its_parent(line: int, chain: bool) -> None:
    forest = forest_of(trees=30, max_leaves=200, chain=chain)
    found = pack(forest, line)
    assert len(np.unique(found.node)) == len(forest.left)
    assert found.node.min() == 0
    assert found.node.max() < found.size
    base = np.repeat(forest.offset[:-1], np.diff(forest.offset))
    split = np.flatnonzero(forest.left >= 0)
    left = found.node[base[split] + forest.left[split]]
    right = found.node[base[split] + forest.right[split]]
    np.testing.assert_array_equal(right, left + 1)
    assert np.all(left % 2 == 0)  # so that no line ends between siblings
    assert np.all(left > found.node[split])
    np.testing.assert_array_equal(found.root, found.node[forest.offset[:-1]])
    assert np.all(found.root % line == 0)


def test_single_leaves_are_packed() -> None:
    found = pack(forest_of(trees=3, max_leaves=1), 8)
    np.testing.assert_array_equal(found.root, [0, 8, 16])


def test_paths_touch_few_lines() -> None:
    """About half as many as with levels one behind the other."""
    forest = forest_of(trees=1, max_leaves=4000)
    base = np.zeros(len(forest.left), np.int64)
    by_level = np.empty(len(forest.left), np.int64)
    by_level[np.concatenate(forest.levels())] = np.arange(len(forest.left))

    def lines(slot: np.ndarray) -> float:
        """Of the paths to all leaves, on average."""
        count = np.ones(len(slot))
        for level in forest.levels():
            own = level[forest.left[level] >= 0]
            for child in (base[own] + forest.left[own], base[own] + forest.right[own]):
                count[child] = count[own] + (slot[child] // 8 != slot[own] // 8)
        return float(count[forest.left < 0].mean())

    assert lines(pack(forest, 8).node) < 0.55 * lines(by_level)


def test_tables_take_no_more_than_the_nodes() -> None:
    """However uneven the trees: nothing is padded up to the largest."""
    ensemble = random_ensemble(np.random.default_rng(1), trees=200, max_leaves=3)
    big = random_ensemble(np.random.default_rng(2), trees=1, max_leaves=3000)
    for model in (ensemble, big):
        forest = make_forest(model, "float32", "float32")
        tables = {**WALK.shared(forest), **WALK.tables(forest, WALK.default(workload_of(forest, 1), CPU))}
        # A tree has a line of its own, at least.
        least = 8 * len(forest.left) + 64 * (len(forest.offset) - 1)
        assert sum(table.nbytes for table in tables.values()) < 2 * least


@pytest.mark.parametrize("rows", [1, 100, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_deep_and_shallow_trees_together(rows: int, dtype: DType) -> None:
    rng = np.random.default_rng(rows)
    ensemble = random_ensemble(rng, trees=11, max_leaves=900, missing="mixed", compare_dtype=dtype)
    forest = make_forest(ensemble, dtype, dtype)
    X = random_rows(rng, ensemble, 3001, dtype)
    workload = workload_of(forest, rows)
    for config in [WALK.default(workload, CPU), *WALK.space(workload, CPU).sample(rng, 3)]:
        got = raw_scores("tree_traversal", ensemble, forest, config, X, rows)
        np.testing.assert_allclose(
            got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, dtype), err_msg=str(config)
        )


@pytest.mark.parametrize(
    ("nodes", "columns", "bits", "linked"),
    [(7000, 56, 8, True), (7000, 300, 9, True), (5_000_000, 56, 6, True), (40_000_000, 56, 6, False)],
)
def test_a_column_takes_a_byte_of_a_link_that_has_room(
    nodes: int, columns: int, bits: int, linked: bool
) -> None:
    slots = Slots("float32", nodes, columns)
    assert (slots.bits, slots.linked) == (bits, linked)


def test_links_that_fit_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees too large, and columns too many, to share 32 bits."""
    monkeypatch.setattr(packing, "LINK_BITS", 4)
    rng = np.random.default_rng(4)
    ensemble = random_ensemble(rng, trees=9, max_leaves=40, groups=3)
    forest = make_forest(ensemble, "float32", "float32")
    assert WALK.shared(forest)["node"].shape[1] == 3
    X = random_rows(rng, ensemble, 100, "float32")
    for rows in (1, 100):
        config = WALK.default(workload_of(forest, rows), CPU)
        got = raw_scores("tree_traversal", ensemble, forest, config, X, rows)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_a_walk_ends_when_all_have_arrived() -> None:
    workload = workload_of(forest_of(max_leaves=300, chain=True), 100)
    config = WALK.default(workload, CPU)
    module = WALK.module(workload, config)
    assert "while" not in module.script()
    assert "while" in rewrite_loops(module).script()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [40, 100, 300])
def test_a_queue_walks_as_blocks_do(rows: int, dtype: DType) -> None:
    """Trees of one leaf, chains, several groups, rows that end at any level, and a tile that is not full."""
    rng = np.random.default_rng(rows)
    for shape in ({"max_leaves": 400, "chain": True}, {"max_leaves": 1}, {"max_leaves": 60, "groups": 3}):
        ensemble = random_ensemble(rng, trees=9, missing="mixed", compare_dtype=dtype, **shape)  # type: ignore[arg-type]
        forest = make_forest(ensemble, dtype, dtype)
        workload, X = workload_of(forest, rows), random_rows(rng, ensemble, 230, dtype)
        blocks = {
            **WALK.default(workload, CPU),
            **dict.fromkeys(("lanes", "tree_tile", "level_unroll", "together"), 1),
            "axis": "rows",
            "order": "trees",
            "lookup": "scalar",
            "vectors": 8,
            "row_tile": 64,
        }
        tile = -(-rows // 8) * 8
        queue = {**blocks, "vectors": tile, "row_tile": tile}
        if rows == 300 and "groups" in shape:  # in blocks: of one group's trees only
            assert not WALK.space(workload, CPU).contains(queue)
            continue
        assert all(WALK.space(workload, CPU).contains(config) for config in (blocks, queue))
        first, second = (
            raw_scores("tree_traversal", ensemble, forest, config, X, rows) for config in (blocks, queue)
        )
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(second, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, dtype))


def test_few_rows_of_large_trees_are_queued() -> None:
    workload = {**workload_of(forest_of(), 100), "nodes": 13_000, "leaves": 6500, "depth": 30, "trees": 500}
    for target in (CPU, V4):
        for threads in (1, 2):
            assert WALK.default({**workload, "threads": threads}, target)["vectors"] == 104
        assert WALK.default({**workload, "rows": 1000}, target)["vectors"] == 1008  # in blocks


def test_equal_pairs_of_leaves_share_slots() -> None:
    """Pure leaves of a classifier: at most four pairs a tree, and the values of two leaves."""
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(600, 5)).astype(np.float32), rng.integers(0, 2, 600)
    model = RandomForestClassifier(7, random_state=0).fit(X, y)
    graph = load_model(model)
    assert isinstance(graph.anchor, TreeEnsemble)
    forest = make_forest(graph.anchor, "float32", "float32")
    found = pack(forest, 8)
    assert len(found.value) == 2
    leaves = np.flatnonzero(forest.left < 0)
    np.testing.assert_array_equal(found.value[found.leaf[leaves]], forest.value[leaves])
    assert found.size < 0.8 * len(forest.left)
    rows = np.concatenate([X, np.where(rng.random(X.shape) < 0.2, np.nan, X)]).astype(np.float32)
    for size in (1, 300):
        config = WALK.default(workload_of(forest, size), CPU)
        got = raw_scores("tree_traversal", graph.anchor, forest, config, rows, size)
        np.testing.assert_allclose(got, margins(graph.anchor, rows), rtol=0, atol=1e-12)


def test_the_likelier_child_comes_next() -> None:
    """By training counts, or by leaves where a model has none."""
    forest = forest_of(trees=5, max_leaves=300)
    cover = np.random.default_rng(0).random(len(forest.left))
    leaves = leaf_ranges(forest)[1]
    for use, packed in ((leaves, pack(forest, 8)), (cover, pack(replace(forest, cover=cover), 8))):
        split = np.flatnonzero(forest.left >= 0)
        left, right = forest.base[split] + forest.left[split], forest.base[split] + forest.right[split]
        likely, other = np.where(use[left] >= use[right], [left, right], [right, left])
        both = (forest.left[likely] >= 0) & (forest.left[other] >= 0)
        below = packed.node[forest.base + forest.left]
        assert both.any()
        np.testing.assert_array_equal(below[likely[both]] // 2, packed.node[likely[both]] // 2 + 1)


def test_rows_prefetch_the_next_tree() -> None:
    """Where several blocks of rows walk one tree; a single block has no time to."""
    forest = forest_of(max_leaves=300, chain=True)
    for rows, fetches in ((100, True), (1, False)):
        workload = workload_of(forest, rows)
        module = WALK.module(workload, WALK.default(workload, V4))
        assert ("llvm.prefetch" in rewrite_loops(module).script()) == fetches
