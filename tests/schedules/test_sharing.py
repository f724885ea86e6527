"""What threads share by default, and their row tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from tests.ensembles import random_ensemble

V3, V4 = (resolve({"kind": "llvm", "mcpu": f"x86-64-v{level}"}) for level in (3, 4))
FOREST = make_forest(random_ensemble(np.random.default_rng(0), trees=100, max_leaves=8), "float32", "float32")


@pytest.mark.parametrize(
    ("trees", "columns", "rows", "shared"),
    [
        (500, 2000, 100, "trees"),  # the tables of half of the trees stay in a cache
        (500, 2000, 10_000, "rows"),  # rows of several vectors share what they fetch
        (200, 2000, 100, "rows"),  # so do the tables of all trees
        (500, 20_000, 100, "rows"),  # columns take longer than trees
    ],
)
@pytest.mark.parametrize("target", [V3, V4])
def test_what_two_threads_of_a_wide_model_share(
    target: Any, trees: int, columns: int, rows: int, shared: str
) -> None:
    start = workload_of(FOREST, rows)
    sizes: dict[str, int] = {
        "features": columns,
        "numeric": columns,
        "trees": trees,
        "leaves": 98,
        "depth": 8,
    }
    workload: Any = {**start, **sizes, "threads": 2, "groups": 1, "value_dtype": "float64"}
    strategy = STRATEGIES["perfect_tree_traversal"]
    config = strategy.default(workload, target)
    assert config["parallel"] == shared
    if rows == 100 and target is V3:  # of a log
        logged = {**config, "row_tile": 16, "vectors": 2, "together": 2}
        assert strategy.with_sharing(logged, workload, target)["parallel"] == shared


@pytest.mark.parametrize(
    ("trees", "rows", "threads", "tile", "shared"),
    [
        (500, 300, 1, 304, None),  # little padding
        (500, 10_000, 1, 2000, None),
        (500, 64, 2, 64, "trees"),  # each thread loads half of the tables
        (500, 30_000, 2, 2000, "trees"),
        (70, 100_000, 64, None, "rows"),  # some threads would walk two trees, others one
        (20, 10_000, 2, None, "rows"),  # the tables stay in a cache
    ],
)
def test_tiles_and_threads_of_deep_forests(
    trees: int, rows: int, threads: int, tile: int | None, shared: str | None
) -> None:
    start = workload_of(FOREST, rows)
    sizes = {"features": 28, "numeric": 56, "trees": trees, "leaves": 3476, "nodes": 6951, "depth": 46}
    workload: Any = {**start, **sizes, "threads": threads, "groups": 1}
    config = STRATEGIES["tree_traversal"].default(workload, V3)
    assert tile is None or config["row_tile"] == tile
    assert config.get("parallel") == shared
