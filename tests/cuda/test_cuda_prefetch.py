"""Tables that are copied to shared memory while threads walk the tile of trees before."""

from __future__ import annotations

import re
import shutil
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.bounds import sass
from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.graph.trees.reference import margins
from hbtvm.schedules.cuda.shape import PREFETCH, Shape, staged_trees
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Strategy, make_forest, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests.cuda_kernels import GPU, NO_NVCC, emulated_scores, usage
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance

CUDA = {
    name: strategy
    for name, strategy in strategies_on(GPU).items()
    if name in ("bitvector", "oblivious", "perfect_tree_traversal", "ranked_traversal")
}


def drawn(
    strategy: Strategy, workload: Workload, target: dict[str, object], **wanted: object
) -> list[Config]:
    """Return configurations that prefetch, of a few threads and rows, and otherwise as wanted."""
    found = strategy.space(workload, target).sample(np.random.default_rng(1), 2000)
    return [
        one
        for one in found
        if one["tables"] == PREFETCH
        and int(one["row_tile"]) <= 64
        and Shape.of(one).threads <= 128
        and all(bool(one[name]) == value if name == "persistent" else one[name] == value
                for name, value in wanted.items())
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize(
    ("dtype", "layout", "persistent", "trees"),
    [
        ("float32", "nodes", False, 37),
        ("float64", "nodes", True, 64),
        ("float32", "trees", True, 37),
        ("float64", "trees", False, 64),
    ],
)
@pytest.mark.parametrize("name", CUDA)
def test_scores_are_the_references(
    name: str, dtype: DType, layout: str, persistent: bool, trees: int
) -> None:
    """In the emulator, copies end only when a thread waits for them. Tiles are even and odd numbers."""
    rng = np.random.default_rng(len(name))
    # Bitvectors of 64 bits for more leaves than 32: as numbers of 64 bits, several copies for each vector.
    leaves = 40 if name == "bitvector" and dtype == "float64" else 16
    kinds: dict[str, Any] = {"missing": "mixed", "compare_dtype": dtype, "oblivious": name == "oblivious"}
    ensemble = random_ensemble(rng, trees=trees, max_leaves=leaves, groups=2, **kinds)
    forest = make_forest(ensemble, dtype, dtype)
    X = random_rows(rng, ensemble, 101, dtype)
    workload, strategy = workload_of(forest, 3000), CUDA[name]
    config = drawn(strategy, workload, {**GPU, "cores": 3}, layout=layout, persistent=persistent)[0]
    np.testing.assert_allclose(
        emulated_scores(strategy, workload, ensemble, forest, config, X),
        margins(ensemble, X),
        rtol=0,
        atol=tolerance(ensemble, dtype),
        err_msg=str(config),
    )


@pytest.mark.parametrize("name", CUDA)
def test_one_barrier_for_each_tile(name: str) -> None:
    """What is asynchronous is not waited for by other barriers, and shared memory has room for two tiles."""
    ensemble = random_ensemble(np.random.default_rng(2), trees=300, max_leaves=16, missing="left")
    workload, strategy = workload_of(make_forest(ensemble, "float32", "float32"), 1_000_000), CUDA[name]
    default = {**strategy.default(workload, GPU), "tree_tile": 2, "resident": 1, "persistent": 0}
    config = {**default, "tables": PREFETCH}
    assert strategy.space(workload, GPU).contains(config)
    assert staged_trees(workload, config) == 2 * staged_trees(workload, {**config, "tables": "shared"})
    source = cuda_source(strategy.module(workload, config), GPU)
    loop = source[source.index("; ++pair)") :]
    assert loop.count("__syncthreads()") == 2  # of two tiles
    assert len(re.findall(r"__pipeline_wait_prior\(0\);\n *__syncthreads\(\)", loop)) == 2
    if NO_NVCC is None:
        code, printed = machine_code(source, GPU, "-Xptxas=-v")
        used = usage(printed)
        assert used["shared"] <= strategy.schedule.needs(workload, config).shared  # type: ignore[attr-defined]
        assert used["spills"] == 0
        # Before compute capability 8.0, the same source copies at once.
        machine_code(source, {**GPU, "arch": "sm_75"})
        if sass.nvdisasm() is not None:
            names = [one.name for one in sass.disassemble(code)["main_kernel"].instructions]
            assert "LDGSTS" in names and "DEPBAR" in names


def test_only_where_there_is_a_next_tile() -> None:
    ensemble = random_ensemble(np.random.default_rng(2), trees=8, max_leaves=9)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), 1000)
    for name, strategy in strategies_on(GPU).items():
        space = strategy.space(workload, GPU)
        choices = {knob.name: knob.choices for knob in space.knobs}["tables"]
        assert (PREFETCH in choices) == (name in CUDA), name
        config = {**strategy.default(workload, GPU), "tables": PREFETCH, "tree_threads": 1, "layout": "nodes"}
        config = {**config, "row_tile": 32, "row_threads": 32}
        for tile in (4, 8):
            fits = space.contains({**config, "tree_tile": tile})
            assert fits == (name in CUDA and tile == 4), (name, tile)
