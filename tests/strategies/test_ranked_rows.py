"""Ranked traversal in vectors of rows, on every kind of CPU that this machine can stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.cpu import missing_features
from hbtvm.schedules.cpu import ranked_rows
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
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
}


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_references(case: str, mcpu: str) -> None:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(len(case))
    ensemble = random_ensemble(rng, trees=11, max_leaves=12, **CASES[case])
    dtype: Any = CASES[case].get("compare_dtype", "float32")
    forest = make_forest(ensemble, dtype, dtype)
    workload = workload_of(forest, 150)
    assert ranked_rows.offers(workload, target), (workload["depth"], workload["rank_bits"])
    X = random_rows(rng, ensemble, 150, dtype)
    for config in (ranked_rows.default(workload, target), _another(workload, target)):
        assert RANKED.space(workload, target).contains(config)
        got = raw_scores("ranked_traversal", ensemble, forest, config, X, 150, target=target)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, dtype))


def _another(workload: Any, target: Any) -> Any:
    """Return a valid configuration that differs from the default in every knob that it can."""
    return {
        **ranked_rows.default(workload, target),
        "row_tile": 128,
        "lanes": ranked_rows.row_lanes(target)[0],
        "vectors": 1,
        "together": 2,
        "tree_tile": 16,
        "order": "rows",
        "search_permutes": 0,
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


def test_tests_lead_to_leaves() -> None:
    leaves = leaves_of_tests()
    for tests, leaf in enumerate(leaves):
        node = 0
        for _ in range(LEVELS):
            node = 2 * node + 1 + (tests >> node & 1)
        assert leaf == node - (2**LEVELS - 1)
