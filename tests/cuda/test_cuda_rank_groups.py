"""Ranked traversal on CUDA where threads rank columns, held against the meaning of the forest."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.compiler.candidates.tasks import forests_of
from hbtvm.compiler.entries import entry_of
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.package.contents import check_contents
from hbtvm.schedules.cpu.steps import WIDE
from hbtvm.schedules.cuda.ranked_layout import RankLayout
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import RANK_GROUP
from hbtvm.strategies import Forest, make_forest, strategies_on, workload_of
from hbtvm.strategies.cuda.rank_groups import node_groups
from hbtvm.strategies.trees.forest import DType
from tests.cuda_kernels import GPU, NO_NVCC, emulated_scores, serial_scores, usage
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance
from tests.knobs import assert_knobs_matter

RANKED = strategies_on(GPU)["ranked_traversal"]
FEATURES = WIDE + 5
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "replaced": {"missing": "as_zero"},
    "left_and_right": {"missing": "mixed", "groups": 2},
    "zeros": {"missing": "zero"},
    "categories": {"missing": "left", "categories": True},
    "float64": {"missing": "as_number", "compare_dtype": "float64"},
    "vector_leaves": {"missing": "as_number", "width": 3},
    "chains": {"max_leaves": 24, "chain": True},
}


def wide(seed: int, dtype: DType = "float32", trees: int = 200, **case: Any) -> tuple[Any, Forest]:
    """A random ensemble of many columns, of which some have more thresholds than a group, and its forest."""
    shape: dict[str, Any] = {"trees": trees, "max_leaves": 20, "features": FEATURES, **case}
    ensemble = random_ensemble(np.random.default_rng(seed), **shape)
    return ensemble, replace(make_forest(ensemble, dtype, "float32"), on_gpu=True)


def by_columns(forest: Forest, rows: int, count: int, seed: int = 1) -> list[Config]:
    """The default configuration and drawn ones, all of which rank columns."""
    workload = workload_of(forest, rows)
    default = {**RANKED.default(workload, GPU), "ranked": "columns"}
    drawn = RANKED.space(workload, GPU).sample(np.random.default_rng(seed), 40 * count)
    chosen = [one for one in drawn if one["ranked"] == "columns" and int(one["row_tile"]) <= 64]
    return [default, *chosen[:count]]


@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_references(case: str) -> None:
    dtype: DType = "float64" if case == "float64" else "float32"
    ensemble, forest = wide(len(case), dtype, **CASES[case])
    assert max(map(len, forest.thresholds)) > RANK_GROUP
    X = random_rows(np.random.default_rng(2), ensemble, 70, dtype)
    for rows in (1, 1000, 100_000):
        for config in by_columns(forest, rows, 1, rows):
            got = serial_scores(RANKED, workload_of(forest, rows), ensemble, forest, config, X)
            np.testing.assert_allclose(
                got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"), err_msg=str(config)
            )


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("case", ["left_and_right", "categories", "chains"])
def test_the_cuda_source_itself_gives_the_references_scores(case: str) -> None:
    ensemble, forest = wide(7, trees=60, **CASES[case])
    X = random_rows(np.random.default_rng(3), ensemble, 41, "float32")
    for rows in (1000, 50_000):
        for config in by_columns(forest, rows, 1):
            got = emulated_scores(RANKED, workload_of(forest, rows), ensemble, forest, config, X)
            np.testing.assert_allclose(
                got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"), err_msg=str(config)
            )


def test_a_rank_in_its_group_decides_each_split() -> None:
    forest = wide(5, missing="mixed")[1]
    config = by_columns(forest, 1000, 0)[0]
    ranks = RankLayout.of(forest.workload(1000), config)
    tables = RANKED.tables(forest, config)
    column, threshold = tables["group_column"], tables["group_threshold"]
    group, place = node_groups(forest)
    split = forest.left >= 0
    assert group.max() < ranks.count == forest.rank_groups and place.max() < RANK_GROUP
    np.testing.assert_array_equal(column[group[split]], forest.column[split])
    np.testing.assert_array_equal(threshold[place[split], group[split]], forest.threshold[split])
    around = [np.nextafter(forest.threshold, np.float32(end)) for end in (-np.inf, np.inf)]
    for x in (forest.threshold, *around, np.full_like(forest.threshold, np.nan)):
        own = np.sum(~(x <= threshold[:, group]), axis=0)
        np.testing.assert_array_equal((own <= place)[split], (x <= forest.threshold)[split])
    # Neighbouring rows begin in neighbouring banks, and what fills up a row counts nothing.
    assert ranks.row_room % 8 == 4 and np.all(threshold[:, ranks.count :] == np.inf)


def test_few_thresholds_for_each_column_are_ranked_by_columns() -> None:
    few, small = wide(1)[1], wide(1, features=20)[1]
    many = wide(1, trees=600)[1]
    numbers = np.random.default_rng(0).normal(size=len(many.left)).astype(np.float32)
    many = replace(many, threshold=numbers, column=(many.column % 5).astype(np.int32))
    for rows in (1, 1000, 1_000_000):
        for forest, expected in ((few, "columns"), (many, "rows"), (small, None)):
            workload = workload_of(forest, rows)
            config = RANKED.default(workload, GPU)
            assert config.get("ranked") == expected
            assert RANKED.space(workload, GPU).contains(config)


def test_workloads_of_many_columns_tell_groups_on_gpus_only() -> None:
    ensemble, forest = wide(1)
    told = [forests_of(ensemble, "float32", on_gpu=on_gpu)[0].workload(1) for on_gpu in (False, True)]
    assert told[1] == {**told[0], "rank_groups": forest.rank_groups} and "rank_groups" not in told[0]


def test_a_group_of_a_column_that_is_not_there_is_noticed() -> None:
    forest = wide(3)[1]
    workload = workload_of(forest, 1000)
    for config in by_columns(forest, 1000, 2):
        entry = entry_of(forest, RANKED, workload, config)
        check_contents(entry.signature, entry.tables)
        names = [argument.name for argument in entry.signature.tables]
        ranks = RankLayout.of(workload, config)
        for name, wrong in (
            ("group_column", forest.n_columns),
            ("group_column", -1),
            ("word", ranks.row_room),
        ):
            spoiled = [table.copy() for table in entry.tables]
            spoiled[names.index(name)].reshape(-1)[0] = wrong
            with pytest.raises(ValueError, match=f"'{name}' holds values"):
                check_contents(entry.signature, spoiled)


@pytest.mark.parametrize("rows", [1, 10_000])
def test_every_knob_is_a_choice(rows: int) -> None:
    forest = wide(4, trees=300, max_leaves=9)[1]
    workload = workload_of(forest, rows)
    # With one row, the constraint ties most knobs to others; but not how ranks are found.
    names = {knob.name for knob in RANKED.space(workload, GPU).knobs}
    tied = names - {"ranked"} if rows == 1 else set()
    assert_knobs_matter(RANKED, workload, GPU, 60, tied, unseen={"resident", "carveout"})


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
@pytest.mark.parametrize("missing", ["right", "as_zero"])
def test_the_default_compiles_without_spills(missing: str) -> None:
    """Defaults compile without spills; what walks look up is found from where a tree begins."""
    forest = wide(6, missing=missing, max_leaves=24, chain=True)[1]
    workload = workload_of(forest, 1_000_000)
    config = RANKED.default(workload, GPU)
    assert config["ranked"] == "columns"
    source = cuda_source(RANKED.module(workload, config), GPU)
    assert "hbtvm_entry(" in source
    used = usage(machine_code(source, GPU, "-Xptxas=-v")[1])
    assert used["spills"] == used["stack"] == 0
