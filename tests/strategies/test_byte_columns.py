"""Walks over perfect trees whose columns are bytes, by permutes of AVX-512 VBMI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.logs.record import Record
from hbtvm.runtime.cpu import missing_features
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import raw_scores, tolerance

PERFECT = STRATEGIES["perfect_tree_traversal"]
VBMI, GATHERS, AVX512 = (
    {"kind": "llvm", "mcpu": mcpu} for mcpu in ("icelake-server", "sapphirerapids", "x86-64-v4")
)


LEAVES = {4: 6, 6: 8, 7: 10, 8: 12}
"""Largest trees of random ensembles by their depth, for seed 0."""


def workload(depth: int, rows: int = 1000, dtype: Any = "float32") -> Workload:
    ensemble = random_ensemble(np.random.default_rng(0), features=28, compare_dtype=dtype)
    sizes = workload_of(make_forest(ensemble, dtype, "float32"), rows)
    return {**sizes, "depth": depth, "leaves": 2**depth, "trees": 500}


@pytest.mark.parametrize(
    ("depth", "features", "rows"), [(4, 5, 100), (6, 28, 16), (6, 128, 300), (7, 28, 90), (8, 128, 300)]
)
def test_scores_are_the_references(depth: int, features: int, rows: int) -> None:
    target = resolve(VBMI)
    if lacking := missing_features(target):
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(0)
    ensemble = random_ensemble(rng, trees=21, max_leaves=LEAVES[depth], features=features, missing="mixed")
    forest = make_forest(ensemble, "float32", "float32")
    assert forest.depth == depth
    X = random_rows(rng, ensemble, rows, "float32")
    sizes = workload_of(forest, rows)
    config = {**PERFECT.default(sizes, target), "bytes": 1, "permute_levels": depth}
    for top in (1, 3):
        config["top_levels"] = top
        assert PERFECT.space(sizes, target).contains(config), config
        got = raw_scores("perfect_tree_traversal", ensemble, forest, config, X, rows, target=target)
        np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))


def test_the_largest_number_of_a_byte() -> None:
    sizes = workload(6)
    count = sizes["numeric"] + sizes["categorical"]
    for more, offered in ((128 - count, True), (129 - count, False)):
        space = PERFECT.space({**sizes, "numeric": sizes["numeric"] + more}, resolve(VBMI))
        assert any(knob.name == "bytes" for knob in space.knobs) == offered


def test_bytes_are_the_default_where_they_are_faster() -> None:
    target = resolve(GATHERS)
    for depth in (5, 6, 7, 8):
        config = PERFECT.default(workload(depth), target)
        assert config["bytes"] == 1 and config["vectors"] == 8 and config["top_levels"] == 3
    # 150 rows fill three tiles of 64 rows, not two of 128.
    assert PERFECT.default(workload(6, rows=150), target)["vectors"] == 4
    for sizes, other in (
        (workload(4), target),
        (workload(6, rows=1), target),
        (workload(6, dtype="float64"), target),
        (workload(6), resolve(AVX512)),
    ):
        config = PERFECT.default(sizes, other)
        assert not config.get("bytes") and PERFECT.space(sizes, other).contains(config)


def test_older_records_keep_their_schedule() -> None:
    sizes, target = workload(6), resolve(VBMI)
    config = PERFECT.default(sizes, target)
    older = {name: choice for name, choice in config.items() if name != "bytes"}
    record = Record(
        workload=sizes, target=target, strategy="perfect_tree_traversal", config=older, times=(1.0,)
    )
    assert PERFECT.space(sizes, target).completed(record.config)["bytes"] == 0
