"""Every strategy, held against the plain-numpy meaning of the forest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.cpu import missing_features
from hbtvm.schedules.space import Config
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.strategies.trees.forest import DType
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, raw_scores, tolerance
from tests.knobs import assert_knobs_matter

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed": {"missing": "mixed", "categories": True},
    "zeros_missing_groups": {"missing": "zero", "groups": 3, "trees": 7},
    "vector_leaves": {"missing": "as_zero", "width": 3},
    "float64": {"missing": "left", "compare_dtype": "float64", "categories": True},
    "missing_as_number": {"missing": "as_number", "compare_dtype": "float64"},
    "full_word": {"max_leaves": 32},
    "second_word": {"max_leaves": 33},
    "long_chains": {"max_leaves": 64, "chain": True, "trees": 3},
    "single_leaves": {"max_leaves": 1},
    "one_stump": {"max_leaves": 2, "features": 1, "trees": 1},
    "oblivious": {"max_leaves": 64, "missing": "mixed", "categories": True, "oblivious": True, "trees": 50},
    "oblivious_outputs": {
        "max_leaves": 40,
        "trees": 8,
        "groups": 2,
        "width": 3,
        "compare_dtype": "float64",
        "oblivious": True,
    },
}
DEEP = {"max_leaves": 300, "trees": 3}
REFUSED = {
    ("ranked_traversal", "long_chains"): "trees are up to 63 levels deep",
    ("ranked_traversal", "single_leaves"): "no tree has a split",
    ("perfect_tree_traversal", "long_chains"): "trees are up to 63 levels deep",
    ("perfect_tree_traversal", "single_leaves"): "no tree has a split",
    ("leaf_intervals", "single_leaves"): "no tree has a split",
    ("oblivious", "long_chains"): "trees are up to 63 levels deep",
    ("oblivious", "single_leaves"): "no tree has a split",
    **{
        ("oblivious", case): "a level's nodes make different tests"
        for case in CASES
        if case not in ("long_chains", "single_leaves", "one_stump") and "oblivious" not in CASES[case]
    },
}
"""What a strategy cannot hold, and the beginning of what it says; it holds all other cases."""


def test_missing_values_that_are_numbers_need_no_second_column() -> None:
    """One column serves nodes on both sides of the number; not where thresholds are the same in float32."""
    ensemble = random_ensemble(np.random.default_rng(1), trees=20, missing="as_number")
    forest = make_forest(ensemble, "float32", "float32")
    assert len(forest.column_feature) == ensemble.n_features
    assert np.all((forest.column_fill >= np.float32(0.4)) & (forest.column_fill < 2))
    nodes = np.flatnonzero(ensemble.feature == 0)[:2]
    threshold, default_left = np.full(ensemble.n_nodes, 1.0), np.zeros(ensemble.n_nodes, bool)
    threshold[nodes[0]], default_left[nodes[0]] = 1.0 + 1e-12, True
    close = replace(ensemble, compare_dtype="float64", threshold=threshold, default_left=default_left)
    widths = [
        np.sum(make_forest(close, dtype, dtype).column_feature == 0) for dtype in ("float32", "float64")
    ]
    assert widths == [2, 1]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_scores_are_the_references(name: str, case: str) -> None:
    rng = np.random.default_rng(len(case))
    ensemble = random_ensemble(rng, **CASES[case])
    dtypes: list[DType] = ["float32", "float64"] if ensemble.compare_dtype == "float64" else ["float32"]
    strategy = STRATEGIES[name]
    for dtype in dtypes:
        value_dtype: DType = "float64" if case in ("mixed", "float64") else "float32"
        forest = make_forest(ensemble, dtype, value_dtype)
        X = random_rows(rng, ensemble, 150, dtype)
        expected = margins(ensemble, X)
        # The default for one number of rows, a sample for the other; strategies and cases take turns.
        turn = (list(STRATEGIES).index(name) + list(CASES).index(case)) % 2
        for rows, default in ((1, not turn), (100, bool(turn))) if dtype == dtypes[0] else ((100, not turn),):
            workload = workload_of(forest, rows)
            refused = strategy.refuse(workload)
            if refused or (name, case) in REFUSED:
                assert refused is not None and refused.startswith(REFUSED[name, case])
                continue
            drawn = [] if default else strategy.space(workload, CPU).sample(rng, 1)
            config = drawn[0] if drawn else strategy.default(workload, CPU)
            got = raw_scores(name, ensemble, forest, config, X, rows)
            np.testing.assert_allclose(
                got, expected, rtol=0, atol=tolerance(ensemble, value_dtype), err_msg=str(config)
            )


def test_deep_trees_are_walked() -> None:
    rng = np.random.default_rng(3)
    ensemble = random_ensemble(rng, **DEEP, missing="mixed")
    forest = make_forest(ensemble, "float32", "float32")
    workload = workload_of(forest, 100)
    refusals = {name: strategy.refuse(workload) for name, strategy in STRATEGIES.items()}
    assert refusals["tree_traversal"] is None
    assert "300 leaves" in str(refusals["bitvector"])
    assert "300 leaves" in str(refusals["gemm"])
    X = random_rows(rng, ensemble, 100, "float32")
    config = STRATEGIES["tree_traversal"].default(workload, CPU)
    got = raw_scores("tree_traversal", ensemble, forest, config, X, 100)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_a_perfect_tree_must_not_be_too_deep() -> None:
    forest = make_forest(
        random_ensemble(np.random.default_rng(1), max_leaves=20, chain=True), "float32", "float32"
    )
    reason = STRATEGIES["perfect_tree_traversal"].refuse(workload_of(forest, 1))
    assert reason is not None
    assert "deep" in reason


@pytest.mark.parametrize(("trees", "leaves"), [(700, 4), (3, 700)])
def test_ranks_and_leaf_numbers_of_more_than_a_byte(trees: int, leaves: int) -> None:
    rng = np.random.default_rng(2)
    ensemble = random_ensemble(rng, trees=trees, max_leaves=leaves, features=2, oblivious=True)
    tree = np.repeat(np.arange(trees), np.diff(ensemble.offset))
    moved = np.where(ensemble.left >= 0, ensemble.threshold + tree / 256, 0.0)
    ensemble = replace(ensemble, threshold=moved.astype(np.float32).astype(float))
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 150, "float32")
    for rows in (1, 100):
        workload = workload_of(forest, rows)
        assert (workload["rank_bits"] > 8, workload["depth"] > 8) == (trees == 700, leaves == 700)
        config = STRATEGIES["oblivious"].default(workload, CPU)
        got = raw_scores("oblivious", ensemble, forest, config, X, rows)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_other_targets_give_the_same_scores(name: str, mcpu: str) -> None:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(5)
    ensemble = random_ensemble(rng, trees=9, missing="mixed", categories=True, oblivious=name == "oblivious")
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 70, "float32")
    for rows in (1, 64):
        config = STRATEGIES[name].default(workload_of(forest, rows), target)
        got = raw_scores(name, ensemble, forest, config, X, rows, target=target)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


@pytest.mark.parametrize("shared", ["none", "rows", "trees"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_threads_change_no_score(name: str, shared: str) -> None:
    rng = np.random.default_rng(6)
    ensemble = random_ensemble(rng, trees=70, groups=2, oblivious=name == "oblivious")
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 777, "float32")
    workload = workload_of(forest, 777, threads=2)
    assert workload["threads"] == 2
    config: Config = {**STRATEGIES[name].default(workload, CPU), "parallel": shared, "grain": 1}
    assert STRATEGIES[name].space(workload, CPU).contains(config)
    got = raw_scores(name, ensemble, forest, config, X, 777, threads=2)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


@pytest.mark.parametrize("rows", [1, 100, 10_000])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_knob_is_a_choice(name: str, rows: int) -> None:
    """Changing one knob changes the program, and its loop features."""
    ensemble = random_ensemble(np.random.default_rng(7), trees=40, max_leaves=9)
    forest = make_forest(ensemble, "float32", "float32")
    # Tied to others by the constraint at this size.
    tied = {"row_tile", "tree_tile", "lanes", "vectors", "axis"}
    assert_knobs_matter(STRATEGIES[name], workload_of(forest, rows), CPU, 60, tied)


def test_a_model_has_at_least_one_strategy() -> None:
    for case in (*CASES.values(), DEEP):
        forest = make_forest(random_ensemble(np.random.default_rng(9), **case), "float32", "float32")
        assert any(strategy.refuse(workload_of(forest, 1)) is None for strategy in STRATEGIES.values())
