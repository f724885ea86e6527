"""Races and reads of unwritten memory in GPU kernels, found by Oclgrind whatever the values are."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.candidates.samples import error_scale, plain_sums, sample_rows
from hbtvm.graph.trees.reference import margins
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_forest, make_linear, make_network, strategies_on, workload_of
from tests import networks, oclgrind
from tests.cuda_kernels import GPU
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance
from tests.strategies.test_linear import CASES, random_linear

pytestmark = pytest.mark.skipif(oclgrind.NO_OCLGRIND is not None, reason=str(oclgrind.NO_OCLGRIND))

STRATEGIES = [name for name in strategies_on(GPU) if name != "gemm"]
"""Those that lower to OpenCL: not tensor cores."""

_MOST_THREADS = 128  # of a block, and most of its rows; more take Oclgrind long
_DRAWN = 20  # configurations, of which one runs


def small(config: Config) -> bool:
    """Whether a configuration has few threads, and no copies without registers, which only CUDA has."""
    threads = int(config["row_threads"]) * int(config["tree_threads"])
    return threads <= _MOST_THREADS and config["tables"] != "prefetch"


def sampled(
    name: str, seed: int, count: int, folder: Path, **run: Any
) -> list[tuple[Any, oclgrind.Run, Any]]:
    """Run distinct configurations of a strategy on small models; return them, results and expected scores."""
    rng, strategy = np.random.default_rng(seed), strategies_on(GPU)[name]
    found: list[tuple[Any, oclgrind.Run, Any]] = []
    seen: set[tuple[Any, ...]] = set()
    for _ in range(50 * count):
        ensemble = random_ensemble(
            rng,
            trees=int(rng.integers(3, 8)),
            max_leaves=int(rng.choice([4, 12])),
            groups=int(rng.choice([1, 2])),
            missing=str(rng.choice(["mixed", "left"])),
            categories=name not in ("perfect_tree_traversal", "oblivious") and bool(rng.integers(2)),
            oblivious=name == "oblivious",
        )
        forest = make_forest(ensemble, "float32", "float32")
        workload = workload_of(forest, int(rng.choice([40, 1_000, 100_000])))
        if strategy.refuse(workload):
            continue
        # Few configurations of small models are valid, and fewer have so few threads.
        drawn = strategy.space(workload, GPU).sample(rng, _DRAWN) if rng.integers(4) else []
        fits = (each for each in (*drawn, strategy.default(workload, GPU)) if small(each))
        config = next((each for each in fits if tuple(each.items()) not in seen), None)
        if config is None:
            continue
        seen.add(tuple(config.items()))
        X = random_rows(rng, ensemble, int(rng.integers(2, 10)), "float32")
        tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
        base = np.ascontiguousarray(ensemble.base_score, np.float64)
        got = oclgrind.run(strategy, workload, config, tables, X, base, ensemble.divisor, folder, **run)
        found.append((config, got, (margins(ensemble, X), max(1e-4, tolerance(ensemble, "float32")))))
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} configurations of {name} are small enough")


_SAMPLES = int(os.environ.get("HBTVM_RACE_SAMPLES", "2"))
"""Configurations of each strategy of trees."""

_CASE_SAMPLES = int(os.environ.get("HBTVM_RACE_SAMPLES", "1"))
"""Configurations of each network and linear model."""


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_race_and_no_unwritten_memory(name: str, tmp_path: Path) -> None:
    for config, got, (want, atol) in sampled(name, 7, _SAMPLES, tmp_path):
        assert got.reports == (), config
        np.testing.assert_allclose(got.scores, want, rtol=0, atol=atol, err_msg=str(config))


def of_operand(operand: Any, X: np.ndarray, base: np.ndarray, folder: Path, **run: Any) -> list[Any]:
    """Run configurations of a network or a linear model, whose rows several threads share if they can."""
    (strategy,) = strategies_on(oclgrind.TARGET, operand.family).values()
    workload, rng = workload_of(operand, 1_000), np.random.default_rng(len(operand.family))
    drawn = [
        config
        for config in strategy.space(workload, oclgrind.TARGET).sample(rng, 200)
        if int(config["row_threads"]) * int(config.get("column_threads", 1)) <= _MOST_THREADS
        and int(config["row_tile"]) <= _MOST_THREADS
    ]
    drawn.sort(key=lambda config: int(config.get("column_threads", 1)) == 1)
    found = []
    for config in drawn[:_CASE_SAMPLES]:
        tables = [*strategy.shared(operand).values(), *strategy.tables(operand, config).values()]
        found.append((config, oclgrind.run(strategy, workload, config, tables, X, base, 1.0, folder, **run)))
    return found


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_networks_have_no_race_and_no_unwritten_memory(name: str, tmp_path: Path) -> None:
    network, X = networks.network(name), networks.rows(5, "float32")
    want = network.reference(X)
    operand = make_network(network, "float32")
    for config, got in of_operand(operand, X, np.zeros(want.shape[1]), tmp_path):
        assert got.reports == (), config
        np.testing.assert_allclose(got.scores, want, rtol=1e-5, atol=1e-5, err_msg=str(config))


@pytest.mark.parametrize("case", CASES)
def test_linear_models_have_no_race_and_no_unwritten_memory(case: str, tmp_path: Path) -> None:
    linear = random_linear(np.random.default_rng(len(case)), **CASES[case])
    X, operand = sample_rows(linear, 5, "float32"), make_linear(linear, "float32", True)
    base = np.zeros(plain_sums(linear, X).shape[1])
    for config, got in of_operand(operand, X, base, tmp_path):
        assert got.reports == (), config
        scale = 1e-5 * error_scale(linear, X)
        np.testing.assert_allclose(
            got.scores, plain_sums(linear, X), rtol=1e-5, atol=scale, err_msg=str(config)
        )


def test_planted_faults_are_seen(tmp_path: Path) -> None:
    without = re.compile(r"barrier\(CLK_LOCAL_MEM_FENCE\);")
    kinds = {
        kind
        for _, got, _ in sampled("bitvector", 7, 2, tmp_path, change=lambda source: without.sub("", source))
        for kind in got.reports
    }
    assert any("data race" in kind for kind in kinds), kinds
