"""Trees with outputs of their own, which kernels compute in tiles without sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import is_known
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, raw_scores

TREES, PADDED = 21, 32


def apart(rng: np.random.Generator, width: int, **options: Any) -> TreeEnsemble:
    """Return trees with `width` outputs each, integers, and no trees for the last outputs."""
    ensemble = random_ensemble(rng, trees=TREES, missing="mixed", categories=True, **options)
    value = rng.integers(1, 1000, (ensemble.n_nodes, width)) * ensemble.is_leaf()[:, None]
    return replace(
        ensemble,
        n_outputs=PADDED * width,
        tree_output=np.arange(TREES, dtype=np.int32) * width,
        base_score=np.zeros(PADDED * width),
        value=value.astype(np.float64),
        divisor=1.0,
    ).validate()


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "leaf_intervals"])
def test_each_tree_has_its_outputs(name: str, width: int) -> None:
    rng = np.random.default_rng(width)
    strategy = STRATEGIES[name]
    ensemble = apart(rng, width, oblivious=name == "oblivious")
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 100, "float32")
    expected = margins(ensemble, X)
    for rows in (1, 100):
        workload = workload_of(forest, rows)
        assert (workload["groups"], workload["trees"], workload["apart"]) == (1, PADDED, PADDED)  # type: ignore[typeddict-item]
        assert is_known(workload, CPU)
        assert not is_known({**workload, "apart": "32"}, CPU)
        space, default = strategy.space(workload, CPU), strategy.default(workload, CPU)
        assert space.contains(default)
        for config in [default, *space.sample(rng, 1 if width > 1 else 2)]:
            got = raw_scores(name, ensemble, forest, config, X, rows)
            np.testing.assert_array_equal(got, expected, err_msg=str(config))


def test_threads_share_rows_alone() -> None:
    rng = np.random.default_rng(5)
    ensemble = apart(rng, 1)
    forest = make_forest(ensemble, "float32", "float32")
    X = random_rows(rng, ensemble, 1000, "float32")
    workload = workload_of(forest, 1000, threads=2)
    assert "adds trees up" in str(STRATEGIES["leaf_intervals"].refuse(workload))
    for strategy in STRATEGIES.values():
        if strategy.refuse(workload) is None:
            space, default = strategy.space(workload, CPU), strategy.default(workload, CPU)
            assert space.contains(default)
            assert "trees" not in next(knob for knob in space.knobs if knob.name == "parallel").choices
    config: Config = {**STRATEGIES["bitvector"].default(workload, CPU), "parallel": "rows", "grain": 1}
    got = raw_scores("bitvector", ensemble, forest, config, X, 1000, threads=2)
    np.testing.assert_array_equal(got, margins(ensemble, X))


def test_kernels_for_gpus_have_groups_of_single_trees() -> None:
    forest = make_forest(apart(np.random.default_rng(0), 1), "float32", "float32")
    workload = workload_of(replace(forest, on_gpu=True), 100)
    assert (workload["groups"], workload["trees"], "apart" in workload) == (PADDED, 1, False)
