"""Ranked traversal in vectors of rows, on every kind of CPU that this machine can stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.building.cpu import compile_module
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.package.contents import check_contents
from hbtvm.schedules.cpu import ranked_rows
from hbtvm.schedules.cpu.oblivious import COMPARE
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.strategies.intrinsics.rank import KEYS, register_order, starts_of
from hbtvm.strategies.intrinsics.subtree import LEVELS
from hbtvm.strategies.trees.ranked_rows import leaves_of_tests
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, raw_scores, tolerance
from tests.knobs import assert_knobs_matter

RANKED = STRATEGIES["ranked_traversal"]
CASES: dict[str, dict[str, Any]] = {
    "uneven": {"missing": "mixed", "categories": True, "features": 5},
    "many columns": {"features": 70, "missing": "mixed"},
    "outputs": {"groups": 2, "width": 3, "features": 16},
    "float64": {"compare_dtype": "float64", "missing": "left", "features": 17},
    "words": {"trees": 400, "missing": "mixed", "features": 3, "categories": True},
    "words, many columns": {"trees": 1500, "missing": "left", "features": 35},
    "words, float64": {"trees": 200, "compare_dtype": "float64", "features": 4},
}


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_references(case: str, mcpu: str) -> None:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(len(case))
    ensemble = random_ensemble(rng, **{"trees": 11, "max_leaves": 12, **CASES[case]})
    dtype: Any = CASES[case].get("compare_dtype", "float32")
    if "words" in case:
        ensemble = _with_many_thresholds(ensemble, rng)
    forest = make_forest(ensemble, dtype, dtype)
    workload = workload_of(forest, 150)
    assert ranked_rows.offers(workload, target), (workload["depth"], workload["rank_bits"])
    assert ("words" in case) == (workload["rank_bits"] > 8)
    X = random_rows(rng, ensemble, 150, dtype)
    for config in (ranked_rows.default(workload, target), _another(workload, target)):
        assert RANKED.space(workload, target).contains(config)
        got = raw_scores("ranked_traversal", ensemble, forest, config, X, 150, target=target)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, dtype))


def _with_many_thresholds(ensemble: TreeEnsemble, rng: np.random.Generator) -> TreeEnsemble:
    """Return an ensemble with other thresholds in nearly all numeric splits."""
    numeric = (ensemble.left != LEAF) & (ensemble.category_set < 0)
    more = rng.integers(1, 2**12, len(numeric)) / 2**12
    return dataclasses.replace(ensemble, threshold=ensemble.threshold + np.where(numeric, more, 0.0))


def _another(workload: Any, target: Any) -> Any:
    """Return a valid configuration that differs from the default in every knob that it can."""
    default = ranked_rows.default(workload, target)
    return {
        **default,
        "row_tile": 128,
        "lanes": ranked_rows.row_lanes(target)[0],
        "vectors": 1,
        "together": 2 if default["byte_levels"] else 1,
        "byte_levels": 0 if default["byte_levels"] else 4,
        "tree_tile": 16,
        "order": "rows",
        "search_permutes": 0,
        "search_lookup": "scalar" if default["search_lookup"] == COMPARE else COMPARE,
    }


def test_every_knob_is_a_choice() -> None:
    ensemble = random_ensemble(np.random.default_rng(7), trees=40, max_leaves=12)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), 1000)
    assert ranked_rows.offers(workload, CPU)
    # Vectors of trees alone have their choices.
    tied = {"axis", "node_lookup", "row_lookup", "leaf_lookup", "tree_tile", "lanes", "vectors", "row_tile"}
    assert_knobs_matter(RANKED, workload, CPU, 60, tied)


def test_configurations_from_before_are_of_trees() -> None:
    ensemble = random_ensemble(np.random.default_rng(7), trees=40, max_leaves=12)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), 8)
    assert not ranked_rows.offers(workload, CPU)
    before = RANKED.default(workload, CPU)
    workload = {**workload, "rows": 1000}
    space = RANKED.space(workload, CPU)
    assert space.contains(space.completed(before))


def test_subtrees_need_no_gathers() -> None:
    rng = np.random.default_rng(1)
    ensemble = _with_many_thresholds(random_ensemble(rng, trees=400, features=3, width=2), rng)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), 150)
    target = resolve({"kind": "llvm", "mcpu": "x86-64-v4"})
    config = ranked_rows.default(workload, target)
    assert not config["byte_levels"]
    code = compile_module(RANKED.module(workload, config), target).mod.inspect_source("asm")
    assert "vpshufb" in code
    assert "vgather" not in code


def test_columns_of_bytes_are_checked() -> None:
    rng = np.random.default_rng(2)
    ensemble = _with_many_thresholds(random_ensemble(rng, trees=400, features=3), rng)
    forest = make_forest(ensemble, "float32", "float32")
    workload = workload_of(forest, 150)
    config = {**ranked_rows.default(workload, CPU), "byte_levels": 4, "together": 1}
    entry = entry_of(forest, RANKED, workload, config)
    check_contents(entry.signature, entry.tables)
    names = [argument.name for argument in entry.signature.tables]
    for spoiled in (-1, len(entry.tables[names.index("source")])):
        tables = list(entry.tables)
        tables[names.index("column")] = np.full_like(tables[names.index("column")], spoiled)
        with pytest.raises(ValueError, match="column"):
            check_contents(entry.signature, tuple(tables))


def test_tests_lead_to_leaves() -> None:
    leaves = leaves_of_tests()
    for tests, leaf in enumerate(leaves):
        node = 0
        for _ in range(LEVELS):
            node = 2 * node + 1 + (tests >> node & 1)
        assert leaf == node - (2**LEVELS - 1)


@pytest.mark.parametrize("bits", range(1, 17))
def test_ranks_are_found_among_all_thresholds(bits: int) -> None:
    rng = np.random.default_rng(bits)
    count = 2**bits - 1
    thresholds = np.sort(rng.permutation(4 * count)[:count]).astype(np.float32)
    padded = np.append(thresholds, np.float32(np.inf))[None]
    table, starts = register_order(padded, bits)[0], starts_of(bits)
    X = np.concatenate([rng.choice(thresholds, 50), rng.normal(2 * count, count, 50), [np.inf, -np.inf]])
    for x in X.astype(np.float32):
        rank = int((x > table[: starts[1]]).sum())
        for start in starts[1:-1]:
            node = table[start + KEYS * rank :][:KEYS]
            rank = (KEYS + 1) * rank + int((x > node).sum())
        assert rank == np.searchsorted(thresholds, x)
