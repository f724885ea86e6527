"""Choosing a kernel without a search."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.candidates.tasks import refusal
from hbtvm.compiler.selection.choose import choose, default_strategy
from hbtvm.compiler.targets.target import resolve
from hbtvm.logs.record import Record
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import STRATEGIES, Strategy, make_forest, strategies_on, workload_of
from tests.ensembles import random_ensemble

GPU = resolve({"kind": "cuda", "arch": "sm_90"})
V3, V4 = (resolve({"kind": "llvm", "mcpu": f"x86-64-v{level}"}) for level in (3, 4))
SAPPHIRE, ZEN = (resolve({"kind": "llvm", "mcpu": name}) for name in ("sapphirerapids", "znver4"))


def shape(trees: int = 100, leaves: int = 8, rows: int = 100) -> tuple[Workload, dict[str, Strategy]]:
    ensemble = random_ensemble(np.random.default_rng(0), trees=trees, max_leaves=leaves)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), rows)
    return workload, {name: s for name, s in STRATEGIES.items() if s.refuse(workload) is None}


def record(workload: Workload, strategy: str, seconds: float, target: Any = V4, **knobs: Any) -> Record:
    config = {**STRATEGIES[strategy].default(workload, target), **knobs}
    return Record(workload=workload, strategy=strategy, target=target, config=config, times=(seconds,))


def test_the_logs_own_best_wins() -> None:
    workload, strategies = shape()
    known = [
        record(workload, "gemm", 3e-5),
        record(workload, "bitvector", 1e-5, node_unroll=3),
        record(workload, "bitvector", 2e-5, node_unroll=5),
    ]
    choice = choose(known, strategies, workload, V4)
    assert (choice.strategy, choice.config["node_unroll"]) == ("bitvector", 3)
    assert (choice.seconds, choice.origin) == (1e-5, "log")


def test_a_similar_workload_is_better_than_none() -> None:
    workload, strategies = shape()
    near, far = shape(trees=120)[0], shape(trees=900)[0]
    known = [record(far, "gemm", 1e-6), record(near, "perfect_tree_traversal", 1e-5, together=4)]
    assert choose(known, strategies, workload, V4).origin == "default"  # the default was not measured
    choice = choose([*known, record(near, "bitvector", 2e-5)], strategies, workload, V4)
    assert (choice.strategy, choice.config["together"]) == ("perfect_tree_traversal", 4)
    assert (choice.seconds, choice.origin) == (None, "similar")
    # Only schedules that beat their workload's default by today's rules count.
    fast, default = record(near, "bitvector", 1e-5, node_unroll=3), record(near, "bitvector", 2e-5)
    assert choose([fast, default], strategies, workload, V4).config["node_unroll"] == 3
    assert choose([fast], strategies, workload, V4).origin == "default"  # the default may be newer
    slow = record(near, "perfect_tree_traversal", 3e-5)
    assert choose([slow, default], strategies, workload, V4).origin == "default"  # as the rules say


@pytest.mark.parametrize(
    ("leaves", "columns", "rows", "v3", "v4"),
    [
        (31, 16, 1, "bitvector", "bitvector"),
        (31, 40, 1, "tree_traversal", "bitvector"),  # a test looks up in five registers of AVX2
        (64, 40, 1, "tree_traversal", "tree_traversal"),
        (31, 500, 7, "tree_traversal", "tree_traversal"),  # a test loads lane by lane
        (31, 500, 8, "bitvector", "tree_traversal"),  # a vector of AVX2 holds eight rows
        (8, 500, 1, "bitvector", "bitvector"),
    ],
)
def test_walks_of_few_rows(leaves: int, columns: int, rows: int, v3: str, v4: str) -> None:
    # Ranks of more than a byte leave leaf intervals out.
    shapes = {"leaves": leaves, "nodes": 2 * leaves - 1, "depth": 12, "rows": rows, "rank_bits": 9}
    workload = {**shape()[0], **shapes, "trees": 300, "numeric": columns}
    able = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
    assert [default_strategy(able, workload, target) for target in (V3, V4)] == [v3, v4]


def test_another_machine_counts_if_its_vectors_are_as_wide() -> None:
    workload, strategies = shape()
    other = {**V4, "features": [*V4["features"], "avx512vnni"]}
    known = [
        record(workload, "gemm", 1e-6, target=V3),
        record(workload, "tree_traversal", 1e-5, target=other),
    ]
    choice = choose(known, strategies, workload, V4)
    assert (choice.strategy, choice.seconds, choice.origin) == ("tree_traversal", None, "similar")
    assert choose(known[:1], strategies, workload, V4).origin == "default"


def test_rules_for_fast_gathers_are_better_than_measurements_of_slow_ones() -> None:
    workload, strategies = shape()
    near = {**workload, "trees": 110}
    other, same = (
        [record(near, "gemm", 1e-6, target), record(near, "bitvector", 1e-5, target)]
        for target in (V4, SAPPHIRE)
    )
    assert choose(other, strategies, workload, SAPPHIRE).origin == "default"
    assert choose(other, strategies, workload, ZEN).origin == "similar"
    assert choose([*other, *same], strategies, workload, SAPPHIRE).strategy == "gemm"


def test_what_does_not_fit_is_translated_or_passed_over() -> None:
    workload, strategies = shape(leaves=200)
    small = shape(leaves=30)[0]
    known = [record(small, "bitvector", 1e-6), record(small, "tree_traversal", 1e-5, row_tile=128)]
    choice = choose(known, strategies, workload, V4)
    assert choice.strategy == "tree_traversal"
    assert STRATEGIES["tree_traversal"].space(workload, V4).contains(choice.config)


def test_defaults_by_shape() -> None:
    for leaves, expected in ((8, "bitvector"), (64, "leaf_intervals"), (1, "bitvector")):
        workload, strategies = shape(leaves=leaves)
        assert default_strategy(strategies, workload, V4) == expected
    workload, strategies = shape(leaves=600)
    assert default_strategy(strategies, workload, V4) == "tree_traversal"
    assert choose([], strategies, workload, V4).origin == "default"
    # Deep trees: by ranks where they are full, as they are where they are not.
    for leaves, expected in ((2000, "ranked_traversal"), (600, "tree_traversal")):
        deep = {**workload, "depth": 12, "leaves": leaves, "nodes": 2 * leaves - 1, "rows": 100}
        usable = {name: one for name, one in STRATEGIES.items() if one.refuse(deep) is None}
        assert default_strategy(usable, deep, V4) == expected


@pytest.mark.parametrize(
    ("leaves", "depth", "trees", "expected"),
    [
        (31, 7, 100, "leaf_intervals"),
        (16, 5, 60, "leaf_intervals"),
        (60, 6, 100, "perfect_tree_traversal"),
        (256, 8, 400, "perfect_tree_traversal"),
        (64, 12, 300, "leaf_intervals"),
        (63, 9, 6, "tree_traversal"),  # vectors of trees would be mostly empty
        (1000, 16, 20, "tree_traversal"),
    ],
)
def test_defaults_of_a_row_where_gathers_are_fast(leaves: int, depth: int, trees: int, expected: str) -> None:
    shapes = {"leaves": leaves, "nodes": 2 * leaves - 1, "depth": depth, "rows": 1, "trees": trees}
    workload = {**shape()[0], **shapes}
    able = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
    assert default_strategy(able, workload, SAPPHIRE) == expected


@pytest.mark.parametrize(
    ("target", "shapes", "pays"),
    [
        (V4, {"leaves": 128, "depth": 12}, True),
        (V3, {"leaves": 100, "depth": 28}, True),
        (V3, {"leaves": 128, "depth": 15}, False),  # few levels for so many leaves
        (V3, {"leaves": 100, "depth": 28, "dtype": "float64"}, False),
        (V4, {"leaves": 100, "depth": 28, "rows": 1}, False),
        (V4, {"leaves": 100, "depth": 28, "width": 7}, False),
        (V4, {"leaves": 100, "depth": 10}, False),
    ],
    ids=str,
)
def test_defaults_of_trees_cut_into_pieces(target: Any, shapes: dict[str, Any], pays: bool) -> None:
    # Ranks of more than a byte leave leaf intervals out.
    others = {"rows": 100, "nodes": 2 * shapes["leaves"] - 1, "rank_bits": 13}
    workload = {**shape()[0], **others, **shapes}
    able = {name: strategy for name, strategy in STRATEGIES.items() if strategy.refuse(workload) is None}
    assert "bitvector" in able
    assert (default_strategy(able, workload, target) == "bitvector") == pays


@pytest.mark.parametrize(
    ("leaves", "depth", "columns", "rows", "expected"),
    [
        (31, 12, 28, 1, "yyy"),  # as LightGBM does
        (31, 12, 28, 15, "yyy"),
        (31, 12, 28, 16, "y--"),  # vectors of 16 rows test numbers
        (31, 12, 70, 8, "-yy"),  # ranks of 70 columns take five lookups of 16 bytes
        (63, 12, 28, 30, "yyy"),
        (64, 6, 28, 1, "yy-"),  # walks are faster where gathers are
        (64, 6, 90, 1, "---"),
        (8, 6, 28, 1, "y--"),  # too few tests for the search for ranks
    ],
)
def test_few_rows_are_tested_by_bytes(
    leaves: int, depth: int, columns: int, rows: int, expected: str
) -> None:
    shapes = {"leaves": leaves, "nodes": 2 * leaves - 1, "depth": depth, "rows": rows, "numeric": columns}
    workload = {**shape()[0], **shapes}
    able = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
    found = [default_strategy(able, workload, target) == "leaf_intervals" for target in (V3, V4, SAPPHIRE)]
    assert "".join("-y"[one] for one in found) == expected


def test_vectors_of_rows_are_as_many_as_words_of_leaves_allow() -> None:
    def default(**shapes: int) -> Any:
        workload = {**shape()[0], **shapes}
        config = STRATEGIES["bitvector"].default(workload, V4)
        assert STRATEGIES["bitvector"].space(workload, V4).contains(config)
        return config

    assert (default(leaves=31)["vectors"], default(leaves=31)["row_tile"]) == (8, 128)
    assert default(leaves=64, depth=12)["vectors"] == 8  # pieces of 32 leaves
    long = default(leaves=64, depth=40)  # words of 64 bits
    assert (long["vectors"], long["node_unroll"]) == (4, 8)
    assert default(leaves=31, rows=130)["row_tile"] == 64  # half of a second tile of 128 would be padding
    assert default(leaves=31, threads=2)["row_tile"] == 64  # a tile for each thread
    assert [default(leaves=31, trees=n)["tree_tile"] for n in (12, 6, 1)] == [4, 2, 1]


@pytest.mark.parametrize("target", [V3, V4, SAPPHIRE])
@pytest.mark.parametrize("rows", [1, 2, 30, 100, 130, 999, 3000, 20_000])
def test_defaults_on_cpus_are_in_the_space_of_any_shape(target: Any, rows: int) -> None:
    start = shape()[0]
    grown = itertools.product((1, 10, 100), (1, 3, 6, 10, 16, 30), (4, 30, 300), (1, 3), (1, 2))
    for (trees, depth, features, groups, threads), dtype in itertools.product(grown, ("float32", "float64")):
        leaves = min(2**depth, 200 * depth)
        sizes = {"trees": trees, "depth": depth, "leaves": leaves, "nodes": 2 * leaves - 1, "groups": groups}
        types = {"dtype": dtype, "value_dtype": dtype, "features": features, "numeric": features}
        workload = {**start, **sizes, **types, "rows": rows, "threads": threads}
        for name in ("bitvector", "perfect_tree_traversal", "tree_traversal"):
            strategy = STRATEGIES[name]
            if strategy.refuse(workload) is None:
                config = strategy.default(workload, target)
                assert strategy.space(workload, target).contains(config), (name, workload, config)


@pytest.mark.parametrize("rows", [1, 100, 10_000])
@pytest.mark.parametrize("target", [V3, V4])
def test_trees_of_one_test_for_each_level_are_oblivious(target: Any, rows: int) -> None:
    rng = np.random.default_rng(0)
    many, few, shallow = (
        workload_of(
            make_forest(random_ensemble(rng, oblivious=True, **kinds), "float32", "float32"),  # type: ignore[arg-type]
            rows,
        )
        for kinds in (
            {"trees": 30, "max_leaves": 64},
            {"trees": 3, "max_leaves": 64},
            {"trees": 30, "max_leaves": 4},
        )
    )
    # Other models' measurements say nothing about a strategy that was no choice there.
    other = {name: size for name, size in many.items() if name != "oblivious"}
    known = [record(other, "bitvector", 1e-9, target)]  # type: ignore[arg-type]
    choice = choose(known, STRATEGIES, many, target)
    assert (choice.strategy, choice.origin) == ("oblivious", "default")
    assert STRATEGIES["oblivious"].space(many, target).contains(choice.config)
    known.append(record(many, "gemm", 1e-9, target))
    assert choose(known, STRATEGIES, many, target).strategy == "gemm"
    assert default_strategy(STRATEGIES, few, target) != "oblivious"
    assert default_strategy(STRATEGIES, shallow, target) != "oblivious"


@pytest.mark.parametrize(
    ("leaves", "depth", "rows", "expected"),
    [
        (31, 10, 100_000, "ranked_traversal"),  # as LightGBM grows them
        (8, 7, 100_000, "ranked_traversal"),
        (64, 6, 100_000, "ranked_traversal"),  # as XGBoost does
        (64, 6, 1000, "perfect_tree_traversal"),  # few rows wait for searches
        (256, 8, 100_000, "ranked_traversal"),
        (64, 12, 100_000, "ranked_traversal"),
        (2000, 16, 100_000, "ranked_traversal"),  # perfect trees would take half a gigabyte
        (31, 5, 1, "bitvector"),  # loads that wait for nothing
        (256, 8, 1, "perfect_tree_traversal"),
    ],
)
def test_defaults_by_shape_on_gpus(leaves: int, depth: int, rows: int, expected: str) -> None:
    shapes = {"leaves": leaves, "nodes": 2 * leaves - 1, "depth": depth, "rows": rows, "trees": 500}
    workload = {**shape()[0], **shapes}
    able = {name: one for name, one in strategies_on(GPU).items() if one.refuse(workload) is None}
    assert default_strategy(able, workload, GPU) == expected
    choice = choose([], able, workload, GPU)
    assert (choice.strategy, choice.origin) == (expected, "default")
    assert able[expected].space(workload, GPU).contains(choice.config)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("rows", [1, 30, 1000, 20_000, 1_000_000])
def test_defaults_on_gpus_are_in_the_space_of_any_shape(arch: str, rows: int) -> None:
    target = resolve({"kind": "cuda", "arch": arch})
    start = shape()[0]
    grown = itertools.product((10, 100, 3500), (3, 6, 10, 16), (4, 300, 2000), ((1, 1), (10, 1), (1, 10)))
    for (trees, depth, features, (groups, width)), dtype in itertools.product(grown, ("float32", "float64")):
        leaves = min(2**depth, 20 * depth)
        workload = {
            **start,
            "rows": rows,
            "trees": trees,
            "depth": depth,
            "leaves": leaves,
            "nodes": 2 * leaves - 1,
            "features": features,
            "numeric": features,
            "groups": groups,
            "width": width,
            "dtype": dtype,
            "value_dtype": dtype,
        }
        for name, strategy in strategies_on(target).items():
            if refusal(strategy, workload, target) is not None:
                # Only where tables of whole products are too large for a small GPU.
                assert strategy.refuse(workload) or (name, arch, leaves) == ("gemm", "sm_75", 200)
                continue
            config = strategy.default(workload, target)
            assert strategy.space(workload, target).contains(config), (name, workload, config)


def test_every_feature_that_packages_tell_is_part_of_a_logs_key() -> None:
    from hbtvm.logs.targets import FEATURES
    from hbtvm.runtime.cpu import LEVELS, RELEVANT_FEATURES

    assert set(RELEVANT_FEATURES) <= FEATURES
    assert {name for needs in LEVELS.values() for name in needs} <= set(RELEVANT_FEATURES)


@pytest.mark.parametrize(
    ("leaves", "depth", "columns", "bits", "v3", "v4"),
    [
        (256, 8, 28, 8, "ranked_traversal", "ranked_traversal"),  # as XGBoost grows them on bins
        (256, 8, 28, 13, "ranked_traversal", "ranked_traversal"),  # with any thresholds
        (256, 8, 60, 13, "ranked_traversal", "ranked_traversal"),  # by scalar walks
        (256, 8, 150, 13, "perfect_tree_traversal", "perfect_tree_traversal"),  # searches for many columns
        (256, 9, 28, 13, "perfect_tree_traversal", "perfect_tree_traversal"),
        (256, 8, 600, 8, "perfect_tree_traversal", "perfect_tree_traversal"),  # more columns than trees
        (64, 6, 28, 8, "ranked_traversal", "perfect_tree_traversal"),
        (64, 6, 28, 13, "ranked_traversal", "perfect_tree_traversal"),
        (31, 10, 28, 8, "leaf_intervals", "bitvector"),  # as LightGBM does
        (8, 7, 28, 8, "leaf_intervals", "bitvector"),
        (31, 10, 160, 8, "bitvector", "bitvector"),  # searches for many columns
        (31, 10, 28, 13, "bitvector", "bitvector"),
        (63, 12, 28, 8, "leaf_intervals", "leaf_intervals"),
    ],
)
def test_byte_ranks_are_the_default_where_they_pay(
    leaves: int, depth: int, columns: int, bits: int, v3: str, v4: str
) -> None:
    shapes = {"leaves": leaves, "nodes": 2 * leaves - 1, "depth": depth, "rows": 1000, "trees": 500}
    workload = {**shape()[0], **shapes, "numeric": columns, "rank_bits": bits}
    able = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
    for target, expected in ((V3, v3), (V4, v4)):
        assert default_strategy(able, workload, target) == expected
        choice = choose([], able, workload, target)
        assert able[expected].space(workload, target).contains(choice.config)
        few = default_strategy(able, {**workload, "rows": 4}, target)
        assert able[few].default({**workload, "rows": 4}, target)["axis"] != "rows" or few != expected


@pytest.mark.parametrize(
    ("columns", "bits", "rows", "expected"),
    [
        (13, 8, 100, "ranked_traversal"),
        (28, 8, 100, "perfect_tree_traversal"),  # searches for many columns
        (4, 13, 100, "ranked_traversal"),
        (13, 13, 100, "perfect_tree_traversal"),
        (28, 13, 1000, "perfect_tree_traversal"),
    ],
)
def test_ranks_against_fast_gathers(columns: int, bits: int, rows: int, expected: str) -> None:
    shapes = {"leaves": 256, "nodes": 511, "depth": 8, "rows": rows, "trees": 500}
    workload = {**shape()[0], **shapes, "numeric": columns, "rank_bits": bits}
    able = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
    assert default_strategy(able, workload, SAPPHIRE) == expected


def test_measurements_from_before_byte_ranks_do_not_hide_them() -> None:
    shapes = {"leaves": 256, "nodes": 511, "depth": 8, "rows": 1000, "trees": 500, "rank_bits": 8}
    workload = {**shape()[0], **shapes}
    able = {name: one for name, one in STRATEGIES.items() if one.refuse(workload) is None}
    other = record({**workload, "trees": 400}, "perfect_tree_traversal", 1e-9)
    assert choose([other], able, workload, V4).origin == "default"
    same = record(workload, "perfect_tree_traversal", 1e-9)
    assert choose([other, same], able, workload, V4).origin == "log"
