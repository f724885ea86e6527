"""Default configurations on CUDA: threads for every multiprocessor, rows in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.bounds.kernels import one_of, usage
from benchmarks.gpu.bounds.occupancy import warps_per_multiprocessor
from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.building.cuda_source import machine_code
from hbtvm.compiler.selection.choose import default_strategy
from hbtvm.compiler.targets.target import resolve
from hbtvm.schedules.cuda.shape import Shape
from hbtvm.schedules.cuda.space import Needs, fits
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.cuda_kernels import NO_NVCC
from tests.ensembles import random_ensemble

H100 = resolve({"kind": "cuda", "arch": "sm_90", "cores": 132})
CUDA = strategies_on(H100)
HELD, SHARED, REGISTERS = 2048, 228 * 1024, 65536
"""Of a multiprocessor of compute capability 9.0 (CUDA C++ Programming Guide, technical specifications)."""

WIDE = {"leaves": 31, "nodes": 61, "numeric": 2000, "features": 2000}
MODELS: dict[str, dict[str, Any]] = {
    "leaves": {"leaves": 31, "depth": 17, "nodes": 61},
    "depth": {"leaves": 256, "depth": 8, "nodes": 511},
    "symmetric": {"leaves": 64, "depth": 6, "nodes": 127, "rank_bits": 7, "oblivious": True},
    "deep": {"leaves": 3000, "depth": 24, "nodes": 6001, "rank_bits": 12, "numeric": 56},
    "forest": {"trees": 100, "leaves": 2204, "depth": 16, "nodes": 4407},
    "wide": {**WIDE, "depth": 12, "rank_groups": 20_000},
    "few thresholds": {**WIDE, "depth": 8, "rank_bits": 5, "rank_groups": 2590},
}


def workload(model: str, rows: int) -> Any:
    """Shapes of 500 trees."""
    small = make_forest(random_ensemble(np.random.default_rng(0), trees=4), "float32", "float32")
    shape = {"trees": 500, "numeric": 28, "features": 28, "categorical": 0, "rank_bits": 8}
    return {**workload_of(small, rows), **shape, **MODELS[model]}


def able(shapes: Any) -> list[str]:
    return [name for name, one in CUDA.items() if name != "gemm" and one.refuse(shapes) is None]


@pytest.mark.parametrize(("rows", "warps"), [(1000, 15), (10_000, 19), (100_000, 16), (1_000_000, 16)])
@pytest.mark.parametrize("model", MODELS)
def test_multiprocessors_are_busy(model: str, rows: int, warps: int) -> None:
    shapes = workload(model, rows)
    names = able(shapes)
    assert "tree_traversal" in names
    for name in names:
        config = CUDA[name].default(shapes, H100)
        assert CUDA[name].space(shapes, H100).contains(config), name
        needs = CUDA[name].schedule.needs(shapes, config)  # type: ignore[attr-defined]
        registers = -(-needs.registers // 8) * 8 * needs.threads
        most = min(HELD // needs.threads, SHARED // (needs.shared + 1024), REGISTERS // registers)
        blocks = -(-rows // int(config["row_tile"])) * int(config["tree_blocks"])
        held = min(blocks / 132, most) * needs.threads / 32
        # Threads of several rows have as many loads on their way.
        assert held * Shape.of(config).rows_each >= warps, (name, config, held)


NVFOREST = {
    "leaves": (61, 38, 64, 64),
    "depth": (30, 38, 64, 64),
    "deep": (30, 38, 64, 64),
    # (Of 1,000 rows nvForest's are 61. Each block loads all thresholds: so many take two thirds longer.)
    "few thresholds": (30, 48, 48, 48),
}
"""Warps of nvForest's best kernel on an H100, by model, for 1,000, 10,000, 100,000 and 1,000,000 rows."""


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
@pytest.mark.parametrize("model", NVFOREST)
def test_as_many_warps_as_of_nvforest(model: str) -> None:
    """By registers and shared memory as compiled, of the best strategy for each model; and without spills."""
    name, cores = "tree_traversal" if model == "deep" else "ranked_traversal", int(H100["cores"])
    compiled: dict[str, Any] = {}
    for rows, warps in zip((1000, 10_000, 100_000, 1_000_000), NVFOREST[model], strict=True):
        shapes = workload(model, rows)
        config = CUDA[name].default(shapes, H100)
        if str(config) not in compiled:
            source, launch = source_and_launch(CUDA[name].module(shapes, config), H100)
            printed = one_of(machine_code(source, H100, "-Xptxas=-v")[1], launch.function)
            compiled[str(config)] = usage(printed, launch.block[0] * launch.block[1], launch.shared)
        use, spilled = compiled[str(config)]
        assert not spilled, config
        blocks = -(-rows // int(config["row_tile"])) * int(config["tree_blocks"])
        held = warps_per_multiprocessor(use, blocks, cores)
        assert round(held) >= warps, (rows, config, held)


@pytest.mark.parametrize("rows", [1000, 10_000, 1_000_000])
@pytest.mark.parametrize("model", ["wide", "few thresholds"])
def test_rows_of_many_features_are_staged(model: str, rows: int) -> None:
    shapes = workload(model, rows)
    for name in able(shapes):
        config = CUDA[name].default(shapes, H100)
        assert config["columns"] != "global" and int(config["row_tile"]) >= 4, name


@pytest.mark.parametrize("rows", [1000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("model", ["leaves", "depth"])
def test_walks_hide_the_latency_of_others(model: str, rows: int) -> None:
    """Each thread has two walks at once or more: one alone took 1.5 times as long on an H200."""
    shapes = workload(model, rows)
    for name in able(shapes):
        if name.endswith("traversal"):
            config = CUDA[name].default(shapes, H100)
            assert int(config["together"]) * Shape.of(config).rows_each >= 2, (name, config)


@pytest.mark.parametrize("rows", [1000, 10_000, 100_000, 1_000_000])
def test_walks_of_large_trees_are_alone(rows: int) -> None:
    """Four at once took 1.2 to 1.6 times as long on an H200."""
    shapes = workload("forest", rows)
    for name in ("ranked_traversal", "tree_traversal"):
        assert CUDA[name].default(shapes, H100)["together"] == 1, name


def test_walks_without_a_loop_are_interleaved_where_threads_are_few() -> None:
    """By nvcc otherwise, which took 1.7 times as long for 10,000 rows, and 0.9 times for 100,000."""
    ranked = CUDA["ranked_traversal"]
    shapes = [{**workload("leaves", rows), "depth": 8} for rows in (10_000, 100_000)]
    assert [ranked.default(one, H100)["together"] for one in shapes] == [4, 1]


@pytest.mark.parametrize("trees", [3, 17, 100, 600, 2000])
def test_defaults_are_in_their_spaces_for_any_number_of_trees(trees: int) -> None:
    for model in MODELS:
        for rows in (1, 30, 1000, 10_000, 1_000_000):
            shapes = {**workload(model, rows), "trees": trees}
            for name in able(shapes):
                assert CUDA[name].space(shapes, H100).contains(CUDA[name].default(shapes, H100)), (name, rows)


def test_rows_share_lines_of_trees_that_few_threads_share() -> None:
    """Four rows for each tree touch fewer lines if trees have lines of their own; two rows, more."""
    ranked = CUDA["ranked_traversal"]
    layouts = {name: ranked.default(workload(name, 1000), H100)["layout"] for name in ("leaves", "depth")}
    assert layouts == {"leaves": "trees", "depth": "nodes"}


def test_a_row_has_a_thread_for_every_tree() -> None:
    for name in able(workload("leaves", 1)):
        config = CUDA[name].default(workload("leaves", 1), H100)
        assert int(config["tree_threads"]) * int(config["tree_blocks"]) >= 500, name


def test_what_the_system_takes_of_shared_memory_counts() -> None:
    def held(blocks: int, shared: int) -> bool:
        return fits(Needs(128, shared, 32), H100, {"resident": blocks})

    assert held(8, 28_160) and not held(8, 28_161)
    assert held(1, 227 * 1024) and not held(1, 227 * 1024 + 1)
    older = resolve({"kind": "cuda", "arch": "sm_86"})
    assert fits(Needs(768, 0, 32), older, {"resident": 2})
    assert not fits(Needs(1024, 0, 32), older, {"resident": 2})


def test_what_is_chosen() -> None:
    """As bounds of kernels are (``python -m benchmarks.gpu.bounds``), and times on an H200."""
    many = dict.fromkeys(("leaves", "depth", "wide", "few thresholds"), "ranked_traversal")
    many = {**many, "deep": "tree_traversal", "forest": "ranked_traversal", "symmetric": "oblivious"}
    perfect = dict.fromkeys(("depth", "symmetric"), "perfect_tree_traversal")
    one_row = {**perfect, "leaves": "bitvector", "deep": "tree_traversal", "forest": "tree_traversal"}
    thousand = {"symmetric": "oblivious", "leaves": "ranked_traversal", "forest": "tree_traversal"}
    few = {"symmetric": "perfect_tree_traversal"}
    for rows, expected in ((1_000_000, many), (1000, thousand), (100, few), (1, one_row)):
        for model, name in expected.items():
            shapes = workload(model, rows)
            assert default_strategy({one: CUDA[one] for one in able(shapes)}, shapes, H100) == name
