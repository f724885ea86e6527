"""Loops, strides and operations of lowered kernels, held against figures worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.s_tir import Schedule

from hbtvm.compiler.features.describe import describe_kernel
from hbtvm.compiler.features.loop_nest import loop_nest
from hbtvm.cost_model import features
from hbtvm.cost_model.encoding.context import contexts
from hbtvm.cost_model.encoding.flat import flat_features
from hbtvm.cost_model.encoding.nest import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Nest, Statement
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import STRATEGIES, make_forest, strategies_on, workload_of
from hbtvm.strategies.intrinsics.exponential import exponential
from hbtvm.strategies.intrinsics.lookup import lookup
from tests.cuda_kernels import GPU
from tests.ensembles import random_ensemble
from tests.kernels import CPU


def matmul() -> Any:
    """C[n, 64] = A[n, 32] @ B[32, 64] in tiles of 8 rows and vectors of 16 columns."""
    n = te.var("n", "int64")
    a, b = te.placeholder((n, 32), "float32", "a"), te.placeholder((32, 64), "float32", "b")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((n, 64), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    sch = Schedule(te.create_prim_func([a, b, c]))
    block = sch.get_sblock("c")
    i, j, k = sch.get_loops(block)
    j, lane = sch.split(j, [None, 16])
    k, inner = sch.split(k, [None, 4])
    sch.reorder(i, j, k, inner, lane)
    sch.unroll(inner)
    sch.vectorize(lane)
    sch.parallel(i)
    sch.decompose_reduction(block, k)
    return sch.mod


def shape(statement: Statement) -> list[tuple[int, int]]:
    return [(loop.extent, loop.kind) for loop in statement.loops]


def test_an_exponential_is_the_steps_that_it_becomes() -> None:
    a = te.placeholder((8,), "float64", "a")
    twice = te.compute((8,), lambda i: exponential(a[i]) + exponential(a[i]) * exponential(a[i] + a[i]), "b")
    (statement,) = loop_nest(Schedule(te.create_prim_func([a, twice])).mod, {})
    # Equal exponentials are computed once: there are two, and around them two additions and a product.
    assert statement.operations == {"multiply": 2 * 8 + 1, "add": 2 * 8 + 2, "bit": 6, "select": 4}


def test_a_matrix_product() -> None:
    start, update = loop_nest(matmul(), {"n": 100})
    assert shape(start) == [(100, PARALLEL), (4, SERIAL), (16, VECTORIZED)]
    assert shape(update) == [(100, PARALLEL), (4, SERIAL), (8, SERIAL), (4, UNROLLED), (16, VECTORIZED)]
    assert [one.number for one in start.loops[:2]] == [one.number for one in update.loops[:2]]
    assert update.operations == {"multiply": 1, "add": 1}
    assert update.lane_bytes == 4
    assert {(one.buffer, one.store, one.strides) for one in update.accesses} == {
        ("x", False, (32, 0, 4, 1, 0)),
        ("table", False, (0, 16, 4 * 64, 64, 1)),
        ("out", False, (64, 16, 0, 0, 1)),
        ("out", True, (64, 16, 0, 0, 1)),
    }
    assert not any(one.gather or one.span > 1 for one in update.accesses)
    context = contexts([(update,)])
    by_role = dict(zip((0, 1, 3), context.accesses.footprint[0, [1, 2, 0]], strict=True))
    assert by_role == {0: 100 * 32 * 4, 1: 32 * 64 * 4, 3: 100 * 64 * 4}


def test_calls_that_share_a_size_are_a_parallel_loop() -> None:
    whole = loop_nest(matmul(), {"n": 100})[1]
    shared = loop_nest(matmul(), {"n": 25}, calls=4, shared="n")[1]
    assert shape(shared) == [(4, PARALLEL), (25, PARALLEL), *shape(whole)[1:]]
    steps = {(one.buffer, one.strides[:2]) for one in shared.accesses}
    assert steps == {("x", (25 * 32, 32)), ("table", (0, 0)), ("out", (25 * 64, 64))}
    touched = [contexts([(one,)]).accesses.touched[0].tolist() for one in (whole, shared)]
    assert touched[0] == touched[1]


@pytest.mark.parametrize("method", ["plain", "scalar", "gather", "permute"])
def test_addresses_from_data(method: str) -> None:
    """out[i, j] = table[i, index[i, j]] + 1, vectors of 8 along j."""
    index = te.placeholder((10, 8), "int32", "index")
    table = te.placeholder((10, 100), "float32", "table")

    def entry(i: Any, j: Any) -> Any:
        if method == "plain":
            return table[i, index[i, j] * 2]
        return lookup(table[i, 0], index[i, j] * 2, 100, method)

    out = te.compute((10, 8), lambda i, j: entry(i, j) + entry(i, j), "out")
    sch = Schedule(te.create_prim_func([index, table, out]))
    sch.vectorize(sch.get_loops(sch.get_sblock("out"))[1])
    (statement,) = loop_nest(sch.mod, {})
    indices, entries, stored = statement.accesses
    assert (indices.buffer, entries.buffer, stored.buffer) == ("x", "table", "out")
    assert entries.strides == (100, 0) and entries.gather and entries.span == 100
    assert indices.strides == stored.strides == (8, 1) and not indices.gather
    # What is written twice is computed once.
    fetched = {"scalar": {"convert": 2}, "gather": {"other": 1}, "permute": {"select": 7}}
    assert statement.operations == {"multiply": 1, "add": 1, **fetched.get(method, {})}
    # Ten runs of 100 entries, of each of which at most 8 are touched.
    assert contexts([(statement,)]).accesses.touched[:, 1].tolist() == [80, 8, 1]


def test_one_address_for_all_lanes_is_no_gather() -> None:
    """out[i, j] = rows[chosen[i], j]: a vector is contiguous, wherever it begins."""
    chosen = te.placeholder((10,), "int32", "chosen")
    rows = te.placeholder((50, 8), "float32", "rows")
    out = te.compute((10, 8), lambda i, j: rows[chosen[i], j], "out")
    sch = Schedule(te.create_prim_func([chosen, rows, out]))
    sch.vectorize(sch.get_loops(sch.get_sblock("out"))[1])
    (statement,) = loop_nest(sch.mod, {})
    read = next(one for one in statement.accesses if one.buffer == "table")
    assert read.strides == (0, 1) and not read.gather and read.span == 1 + 49 * 8


def test_what_is_computed_in_a_tile_stays_in_a_tile() -> None:
    """A stage inside the loop over tiles has the tile's shape, so the loop does not move it."""
    a = te.placeholder((64, 16), "float32", "a")
    twice = te.compute((64, 16), lambda i, j: a[i, j] * 2.0, "twice")
    out = te.compute((64, 16), lambda i, j: tirx.max(twice[i, j], 0.0), "out")
    sch = Schedule(te.create_prim_func([a, out]))
    i, _ = sch.get_loops(sch.get_sblock("out"))
    outer, _ = sch.split(i, [None, 4])
    sch.compute_at(sch.get_sblock("twice"), outer)
    first, second = loop_nest(sch.mod, {})
    stored = next(one for one in first.accesses if one.store)
    assert (stored.buffer, stored.strides) == ("scratch", (0, 16, 1))
    assert first.operations == {"multiply": 1} and second.operations == {"select": 1}
    assert first.loops[0] == second.loops[0]


def test_blocks_are_parallel_and_threads_are_lanes() -> None:
    a = te.placeholder((1024, 32), "float32", "a")
    out = te.compute((1024, 32), lambda i, j: a[i, j] + 1.0, "out")
    sch = Schedule(te.create_prim_func([a, out]))
    i, _ = sch.get_loops(sch.get_sblock("out"))
    block, thread = sch.split(i, [None, 128])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    (statement,) = loop_nest(sch.mod, {}, gpu=True)
    assert shape(statement) == [(8, PARALLEL), (32, SERIAL), (128, VECTORIZED)]
    assert {one.strides for one in statement.accesses} == {(128 * 32, 1, 32)}


def workload(rows: int, threads: int = 1) -> Workload:
    """Powers of two, so that nothing is rounded up: 64 trees of at most 8 tests."""
    ensemble = random_ensemble(np.random.default_rng(0), trees=64, groups=2, max_leaves=9)
    return workload_of(make_forest(ensemble, "float32", "float32"), rows, threads)


def work(nest: Nest, kind: str) -> float:
    """Operations of a kind in a whole call."""
    runs = [math.prod(loop.extent for loop in statement.loops) for statement in nest]
    return sum(n * statement.operations.get(kind, 0) for n, statement in zip(runs, nest, strict=True))


def padded(shapes: Workload, config: Any) -> int:
    """Trees times rows of a call, as tiles hold them."""
    trees = -(-shapes["trees"] // config.get("tree_blocks", 1))
    tiles = -(-trees // config["tree_tile"]) * config["tree_tile"] * config.get("tree_blocks", 1)
    rows = -(-shapes["rows"] // config["row_tile"]) * config["row_tile"]
    return int(tiles * rows * shapes["groups"])


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
@pytest.mark.parametrize("rows", [64, 4096])
def test_each_tree_compares_as_often_as_its_strategy_says(rows: int, target: dict[str, Any]) -> None:
    gpu = target["kind"] == "cuda"
    shapes = workload(rows, 1 if gpu else 2)
    # Tests of a tree are taken in steps of so many.
    steps = {
        "bitvector": lambda config: config["node_unroll"] * config.get("node_vector", 1),
        "tree_traversal": lambda config: config["level_unroll"],
    }
    each = {"bitvector": shapes["leaves"] - 1, "tree_traversal": shapes["depth"]}
    for name, step in steps.items():
        strategy = strategies_on(target)[name]
        for config in strategy.space(shapes, target).sample(np.random.default_rng(1), 5):
            if config.get("parallel", "none") != "none" or config.get("columns") == "global":
                continue  # the last call may have less; what is filled in is compared, too
            nest = describe_kernel(strategy, shapes, gpu, config)
            rounded = -(-each[name] // step(config)) * step(config)
            # Walks on a GPU also compare whether they have come to a leaf.
            leaf = 2 if gpu and name == "tree_traversal" else 1
            expected = padded(shapes, config) * rounded * leaf
            found = work(nest, "compare")
            assert expected <= found <= 1.25 * expected + 100 * rows, (name, config)


@pytest.mark.parametrize("shared", ["rows", "trees"])
def test_threads_share_a_call(shared: str) -> None:
    strategy, shapes = STRATEGIES["bitvector"], workload(4096, 2)
    config = {**strategy.serial_default(shapes, CPU), "grain": 1}
    alone, both = (
        describe_kernel(strategy, shapes, False, {**config, "parallel": how}) for how in ("none", shared)
    )
    assert work(alone, "compare") == work(both, "compare")
    calls = 8 if shared == "rows" else 2
    assert all(statement.loops[0].extent == calls for statement in both)
    assert all(statement.loops[0].kind == PARALLEL for statement in both)


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
def test_every_strategy_has_loop_features_without_code_of_its_own(target: dict[str, Any]) -> None:
    shapes = workload(4096)
    for strategy in strategies_on(target).values():
        configs = strategy.space(shapes, target).sample(np.random.default_rng(3), 6)
        nests = [describe_kernel(strategy, shapes, target["kind"] == "cuda", config) for config in configs]
        for kind in (features, flat_features):
            table = kind(nests)
            assert np.isfinite(table).all()
            assert len(np.unique(table, axis=0)) > 1
        roles = {access.buffer for nest in nests for statement in nest for access in statement.accesses}
        assert roles == {"x", "table", "scratch", "out"}


def test_searches_on_choices_do_not_load_it() -> None:
    code = (
        "import sys; import hbtvm.compiler.candidates.tasks, hbtvm.tuning.session; "
        "assert not {n for n in sys.modules if n.endswith(('features.loop_nest', 'features.expressions'))}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
