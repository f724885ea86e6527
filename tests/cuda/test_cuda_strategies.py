"""Every CUDA kernel, run with loops in place of threads, held against the meaning of the forest."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.building.cuda_source import cuda_source
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.features.describe import describe_kernel
from hbtvm.compiler.lowering.cuda.score_epilogue import with_epilogue
from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.package.contents import check_contents
from hbtvm.schedules.cuda.oblivious import RankLanes
from hbtvm.strategies import make_forest, make_network, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests import networks
from tests.cuda_kernels import GPU, emulated_scores, serial_run, serial_scores
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance
from tests.knobs import assert_knobs_matter
from tests.strategies.test_strategies import CASES, REFUSED

CUDA = strategies_on(GPU)
CUDA_REFUSED = {key: why for key, why in REFUSED.items() if key != ("ranked_traversal", "long_chains")}
SEARCHED = ("ranked_traversal", "oblivious")
"""Strategies over ranks, whose search reads a column once."""


def forty_trees(rng: np.random.Generator, name: str, trees: int = 40) -> TreeEnsemble:
    """Return an ensemble that a strategy can hold."""
    kinds: dict[str, Any] = {"missing": "mixed", "categories": True, "oblivious": name == "oblivious"}
    return random_ensemble(rng, trees=trees, max_leaves=20, groups=2, **kinds)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CUDA)
def test_scores_are_the_references(name: str, case: str) -> None:
    rng = np.random.default_rng(len(case))
    ensemble = random_ensemble(rng, **CASES[case])
    dtypes: list[DType] = ["float32", "float64"] if ensemble.compare_dtype == "float64" else ["float32"]
    for dtype in dtypes:
        value_dtype: DType = "float64" if case in ("mixed", "float64") else "float32"
        forest = make_forest(ensemble, dtype, value_dtype)
        X = random_rows(rng, ensemble, 150, dtype)
        expected = margins(ensemble, X)
        for rows in (1, 100_000) if case in ("mixed", "vector_leaves") else (3000,):
            workload = workload_of(forest, rows)
            refused = CUDA[name].refuse(workload)
            if refused or (name, case) in CUDA_REFUSED:
                assert refused is not None and refused.startswith(CUDA_REFUSED[name, case])
                continue
            drawn = CUDA[name].space(workload, GPU).sample(rng, 1)
            for config in [CUDA[name].default(workload, GPU), *drawn] if rows == 100_000 else drawn:
                got = serial_scores(CUDA[name], workload, ensemble, forest, config, X)
                np.testing.assert_allclose(
                    got, expected, rtol=0, atol=tolerance(ensemble, value_dtype), err_msg=str(config)
                )


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("name", CUDA)
def test_the_cuda_source_itself_gives_the_references_scores(name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    ensemble = forty_trees(rng, name)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 41, "float32")  # the last tile is not whole
    workload, strategy = workload_of(forest, rows), CUDA[name]
    staged = [
        config
        for config in strategy.space(workload, GPU).sample(rng, 50)
        if (config["tables"] == "shared" or config["columns"] != "global") and int(config["row_tile"]) <= 128
    ]
    for config in [strategy.default(workload, GPU), *staged[:1]]:
        got = emulated_scores(strategy, workload, ensemble, forest, config, X)
        np.testing.assert_allclose(
            got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"), err_msg=str(config)
        )


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("missing", ["as_number", "mixed", "zero"])
@pytest.mark.parametrize("name", [name for name in CUDA if name not in SEARCHED])
def test_columns_of_categories_are_computed_where_they_are_used(name: str, missing: str) -> None:
    rng = np.random.default_rng(8)
    ensemble = random_ensemble(rng, trees=40, max_leaves=20, groups=2, missing=missing, categories=True)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 41, "float32")
    workload, strategy = workload_of(forest, 3000), CUDA[name]
    drawn = strategy.space(workload, GPU).sample(rng, 100)
    config = next(c for c in drawn if c["columns"] == "global" and int(c["row_tile"]) <= 64)
    for scores in (serial_scores, emulated_scores):
        got = scores(strategy, workload, ensemble, forest, config, X)
        np.testing.assert_allclose(
            got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"), err_msg=str(config)
        )


@pytest.mark.parametrize("name", ["perfect_tree_traversal", "tree_traversal"])
def test_a_step_of_a_walk_reads_one_feature_once(name: str) -> None:
    """What is read several times is lowered as often, conditions and all, which once took half a minute."""
    ensemble = random_ensemble(np.random.default_rng(9), trees=40, missing="mixed", categories=True)
    workload, strategy = workload_of(make_forest(ensemble, "float32", "float32"), 3000), CUDA[name]
    drawn = strategy.space(workload, GPU).sample(np.random.default_rng(0), 100)
    config = next(c for c in drawn if c["columns"] == "global")
    source = cuda_source(strategy.module(workload, config), GPU)
    rows = int(config["row_tile"]) // int(config["row_threads"])
    steps = rows * int(config["together"]) * int(config["level_unroll"])
    assert source[source.rindex("main_kernel(") :].count("rows_ptr[") == steps


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("name", CUDA)
def test_persistent_blocks_stride_over_row_tiles(name: str) -> None:
    """Blocks that end after different numbers of tiles, with tables that are kept and that are not."""
    rng = np.random.default_rng(3)
    ensemble = forty_trees(rng, name)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 501, "float32")
    workload, strategy, target = workload_of(forest, 3000), CUDA[name], {**GPU, "cores": 3}
    drawn = strategy.space(workload, target).sample(rng, 300)
    # (Walks of one step are compiled for the CPU in a tenth of the time that four take.)
    short = [c for c in drawn if int(c.get("level_unroll", 1)) * int(c.get("together", 1)) <= 2]
    lasting = [c for c in short if c["persistent"] and 8 <= int(c["row_tile"]) <= 64]
    kept = [c for c in lasting if c["tables"] == "kept"]
    assert bool(kept) == (name != "tree_traversal")
    for config in [*lasting[:1], *kept[:1]]:
        launch = source_and_launch(strategy.module(workload, config), GPU)[1]
        assert launch.grid == (-(-3 * int(config["resident"]) // 2), 2, 1)
        for scores in (serial_scores, emulated_scores):
            np.testing.assert_allclose(
                scores(strategy, workload, ensemble, forest, config, X),
                margins(ensemble, X),
                rtol=0,
                atol=tolerance(ensemble, "float32"),
                err_msg=str(config),
            )


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("name", CUDA)
def test_blocks_share_a_groups_trees(name: str) -> None:
    rng = np.random.default_rng(4)
    ensemble = forty_trees(rng, name, 43)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 51, "float32")
    workload, strategy = workload_of(forest, 50), CUDA[name]
    drawn = strategy.space(workload, GPU).sample(rng, 100)
    config = next(c for c in drawn if int(c["tree_blocks"]) > 2 and int(c["row_tile"]) <= 32)
    launch = source_and_launch(strategy.module(workload, config), GPU)[1]
    assert launch.grid[1:] == (2 * int(config["tree_blocks"]), 1)
    for scores in (serial_scores, emulated_scores):
        np.testing.assert_allclose(
            scores(strategy, workload, ensemble, forest, config, X),
            margins(ensemble, X),
            rtol=0,
            atol=tolerance(ensemble, "float32"),
            err_msg=str(config),
        )


def test_trees_are_split_only_for_few_rows_and_where_there_are_many() -> None:
    rng = np.random.default_rng(5)
    for trees, rows, most, chosen in (
        (3500, 1, 64, 2),
        (500, 1, 64, 1),
        (3500, 1024, 64, 1),
        (3500, 2000, 1, 1),
    ):
        forest = make_forest(random_ensemble(rng, trees=trees, max_leaves=9), "float32", "float32")
        workload, strategy = workload_of(forest, rows), CUDA["bitvector"]
        space, default = strategy.space(workload, GPU), strategy.default(workload, GPU)
        assert {knob.name: knob.choices[-1] for knob in space.knobs}["tree_blocks"] == most
        assert default["tree_blocks"] == chosen and space.contains(default)
    # What keeps all multiprocessors busy anyhow is not split.
    workload = workload_of(forest, 1000)
    config = {**strategy.default(workload, GPU), "row_tile": 4, "row_threads": 4, "tree_threads": 32}
    config = {**config, "tree_tile": 32, "layout": "nodes"}
    space = strategy.space(workload, GPU)
    assert [n for n in (1, 2, 4) if space.contains({**config, "tree_blocks": n})] == [1, 2]


def test_what_finishes_scores_of_a_tile_in_one_axis() -> None:
    strategy = strategies_on(GPU, "contract")["fused"]
    workload = workload_of(make_network(networks.network("linear"), "float64"), 100)
    module = with_epilogue(strategy.module(workload, strategy.default(workload, GPU)), 1, 1)
    scores = np.random.default_rng(7).normal(size=(3, 1, 2, 32))
    sums = np.zeros((3, 32, 1, 2))
    finish = tvm.IRModule({"main": module["finish"].with_attr("global_symbol", "main")})
    serial_run(finish, [scores, sums])
    np.testing.assert_array_equal(sums, scores.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("parts", [1, 3])
def test_what_finishes_scores_on_a_device_with_tvm_only(parts: int) -> None:
    """Sums of parts by rows: with loops in place of threads, and as CUDA source beside the kernel's."""
    ensemble = random_ensemble(np.random.default_rng(6), trees=40, groups=2, width=3)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), 100)
    strategy = CUDA["tree_traversal"]
    config = {**strategy.default(workload, GPU), "row_tile": 8, "row_threads": 4, "tree_blocks": parts}
    module = with_epilogue(strategy.module(workload, config), 2, parts)
    finish = tvm.IRModule({"main": module["finish"].with_attr("global_symbol", "main")})
    rng = np.random.default_rng(7)
    scores = rng.normal(size=(5, parts * 2, 3, 2, 4))
    sums = np.zeros((5, 8, 2, 3))
    serial_run(finish, [scores, sums])
    expected = scores.reshape(5, parts, 2, 3, 8).sum(axis=1).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(sums, expected, rtol=1e-15)
    source = cuda_source(module, GPU)
    assert "main_kernel(" in source and "finish_kernel(" in source


@pytest.mark.parametrize("name", [name for name in CUDA if name != "tree_traversal"])
def test_kept_tables_are_copied_once_for_a_block(name: str) -> None:
    forest = make_forest(random_ensemble(np.random.default_rng(5), trees=40), "float32", "float32")
    workload, strategy = workload_of(forest, 1_000_000), CUDA[name]
    space = strategy.space(workload, GPU)
    staged = {
        **strategy.default(workload, GPU),
        "persistent": GPU["cores"],
        "resident": 1,
        "columns": "shared",
    }
    table = {"bitvector": "threshold", "gemm": "path", "ranked_traversal": "word", "oblivious": "limit"}.get(
        name, "node"
    )
    for tables in ("shared", "kept"):
        config = {**staged, "tables": tables}
        assert space.contains(config)
        source = cuda_source(strategy.module(workload, config), GPU)
        kernel = source[source.index('extern "C" __global__') :]
        rows = kernel.index("; ++step)")
        copy = re.search(rf" = [^\n]*\b{table}_ptr\b", kernel)
        assert copy is not None
        assert (copy.start() < rows) == (tables == "kept")
        # (Two barriers follow the last read of gemm's columns, and of columns that are staged for a search.)
        if name not in ("gemm", "oblivious"):
            # Whoever fills the columns again waits for those who still read them.
            assert re.match(r"[^}]*?\n *__syncthreads\(\);\n *for", kernel[rows:])


def test_blocks_are_persistent_only_where_there_is_work_for_several_rounds() -> None:
    forest = make_forest(random_ensemble(np.random.default_rng(5), trees=40), "float32", "float32")
    for name, strategy in CUDA.items():
        few = strategy.space(workload_of(forest, 100), GPU)
        assert {knob.name: knob.choices for knob in few.knobs}["persistent"] == (0,)
        workload = workload_of(forest, 50_000)
        space = strategy.space(workload, {**GPU, "cores": 100})
        config = {**strategy.default(workload, GPU), "persistent": 100, "row_tile": 128, "row_threads": 128}
        config["tree_threads"] = 1
        for resident, there in ((1, True), (2, True), (4, False)):
            assert space.contains({**config, "resident": resident}) == there, (name, resident)


def test_tables_of_single_nodes_can_be_staged() -> None:
    """Where TVM can't make the copy, a configuration is none."""
    forest = make_forest(
        random_ensemble(np.random.default_rng(0), trees=9, max_leaves=2), "float32", "float32"
    )
    workload = workload_of(forest, 200_000)
    drawn = CUDA["bitvector"].space(workload, GPU).sample(np.random.default_rng(1), 200)
    shared, kept = ([config for config in drawn if config["tables"] == how] for how in ("shared", "kept"))
    assert len(shared) > 5 and len(kept) > 5
    for config in (*shared[:6], *kept[:6]):
        assert "main_kernel" in cuda_source(CUDA["bitvector"].module(workload, config), GPU)


def test_loops_of_kept_tables() -> None:
    ensemble = random_ensemble(np.random.default_rng(5), trees=64, max_leaves=31)
    forest = make_forest(ensemble, "float32", "float32")
    workload, strategy = workload_of(forest, 1_000_000), CUDA["bitvector"]
    config = {**strategy.default(workload, GPU), "resident": 1, "row_tile": 256, "tree_tile": 32}
    configs = [
        {**config, "persistent": persistent, "tables": tables}
        for persistent, tables in ((0, "shared"), (128, "shared"), (128, "kept"))
    ]
    nests = [describe_kernel(strategy, workload, True, one) for one in configs]

    def runs(nest: Nest, copied: str = "") -> list[int]:
        """Executions of each statement that has work, or of those that only copy from what has a role."""
        chosen = [
            one
            for one in nest
            if (not one.operations and {a.buffer for a in one.accesses} == {copied, "scratch"})
            or (one.operations and not copied)
        ]
        return [math.prod(loop.extent for loop in one.loops) for one in chosen]

    # The same work for 3,907 tiles of rows as for 128 blocks that take 31 each.
    work = [np.array(runs(nest)) for nest in nests]
    np.testing.assert_allclose(work[1] / work[0], 128 * 31 / 3907)
    np.testing.assert_array_equal(work[1], work[2])
    # Three tables are copied for each tile; or once for each block that stays, of all trees.
    copies = [sum(runs(nest, "table")) for nest in nests]
    np.testing.assert_allclose(np.array(copies) / copies[2], [3907 / 128, 31, 1])


@pytest.mark.parametrize("product_dtype", ["int8", "float16"])
def test_counts_may_be_larger_than_a_byte(product_dtype: str) -> None:
    rng = np.random.default_rng(6)
    ensemble = random_ensemble(rng, max_leaves=230, trees=2, chain=True)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 41, "float32")  # the last tile is not whole
    workload = workload_of(forest, 1000)
    config = {**CUDA["gemm"].default(workload, GPU), "product_dtype": product_dtype}
    got = serial_scores(CUDA["gemm"], workload, ensemble, forest, config, X)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_many_columns_make_wide_slots() -> None:
    """Where column and left child's offset do not fit 32 bits together, a slot takes two words."""
    rng = np.random.default_rng(4)
    ensemble = random_ensemble(rng, max_leaves=40_000, trees=1, features=9_000)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 41, "float32")  # the last tile is not whole
    workload = workload_of(forest, 1000)
    config = CUDA["tree_traversal"].default(workload, GPU)
    assert config["columns"] == "global"
    assert CUDA["tree_traversal"].shared(forest)["node"].shape[1] == 2
    got = serial_scores(CUDA["tree_traversal"], workload, ensemble, forest, config, X)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


@pytest.mark.parametrize("rows", [1, 10_000])
@pytest.mark.parametrize("name", CUDA)
def test_every_knob_is_a_choice(name: str, rows: int) -> None:
    """Changing one knob changes the program, and its loop features."""
    ensemble = random_ensemble(np.random.default_rng(7), trees=300, max_leaves=9)
    forest = make_forest(ensemble, "float32", "float32")
    workload = workload_of(forest, rows)
    # With one row, the constraint ties most knobs to others.
    tied = {knob.name for knob in CUDA[name].space(workload, GPU).knobs} if rows == 1 else set()
    # How many blocks a multiprocessor holds, and what it leaves to L1, is no loop.
    assert_knobs_matter(CUDA[name], workload, GPU, 30, tied, unseen={"resident", "carveout"})


@pytest.mark.parametrize("rows", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("name", CUDA)
def test_defaults_are_in_the_space_of_any_model(name: str, rows: int) -> None:
    shapes = [*CASES.values(), {"max_leaves": 256, "trees": 2, "features": 700}, {"trees": 500, "width": 12}]
    for shape in shapes:
        forest = make_forest(random_ensemble(np.random.default_rng(9), **shape), "float32", "float32")
        workload = workload_of(forest, rows)
        if CUDA[name].refuse(workload) is None:
            config = CUDA[name].default(workload, GPU)
            assert CUDA[name].space(workload, GPU).contains(config), (shape, config)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize(
    ("trees", "leaves", "bits", "spare"), [(25, 4, 8, True), (150, 4, 8, False), (9, 600, 16, True)]
)
def test_lanes_hold_ranks_and_leaf_numbers(trees: int, leaves: int, bits: int, spare: bool) -> None:
    """Ranks that leave a lane's highest bit free and that do not, and leaves beyond a byte."""
    rng = np.random.default_rng(2)
    ensemble = random_ensemble(rng, trees=trees, max_leaves=leaves, features=1, oblivious=True)
    tree = np.repeat(np.arange(trees), np.diff(ensemble.offset))
    moved = np.where(ensemble.left >= 0, ensemble.threshold + tree / 256, 0.0)
    ensemble = replace(ensemble, threshold=moved.astype(np.float32).astype(float))
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 150, "float32")
    workload, strategy = workload_of(forest, 1000), CUDA["oblivious"]
    shape = {"row_tile": 64, "row_threads": 16, "tree_threads": 2, "tree_tile": 4, "layout": "nodes"}
    for staged in (0, 1):
        config = {**strategy.default(workload, GPU), **shape, "staged": staged}
        lanes = RankLanes.of(workload, config)
        assert (lanes.bits, lanes.spare, lanes.packed) == (bits, spare, 32 // bits)
        got = emulated_scores(strategy, workload, ensemble, forest, config, X)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_a_column_that_is_not_there_is_noticed() -> None:
    forest = make_forest(forty_trees(np.random.default_rng(3), "oblivious"), "float32", "float32")
    workload, strategy = workload_of(forest, 1000), CUDA["oblivious"]
    entry = entry_of(forest, strategy, workload, strategy.default(workload, GPU))
    check_contents(entry.signature, entry.tables)
    at = [argument.name for argument in entry.signature.tables].index("place")
    for wrong in (-1, entry.tables[at].max() + RankLanes.of(workload, strategy.default(workload, GPU)).words):
        spoiled = [table.copy() for table in entry.tables]
        spoiled[at].reshape(-1)[0] = wrong
        with pytest.raises(ValueError, match="'place' holds values"):
            check_contents(entry.signature, spoiled)
