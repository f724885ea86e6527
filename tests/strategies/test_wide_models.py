"""Models of many features, whose rows are turned into columns by blocks."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.lowering.rewrites import rewrite_loops
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.cpu import missing_features
from hbtvm.schedules.cpu.steps import transposes_blocks
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.strategies.trees.forest import DType
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, raw_scores, tolerance

WIDE = {"trees": 60, "max_leaves": 9, "missing": "mixed"}


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("features", [160, 171])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("missing", ["mixed", "left", "right"])
def test_scores_are_the_references(missing: str, dtype: DType, features: int, mcpu: str) -> None:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(features)
    wide: dict[str, Any] = {**WIDE, "missing": missing}
    ensemble = random_ensemble(
        rng, features=features, categories=missing == "mixed", compare_dtype=dtype, **wide
    )
    forest = make_forest(ensemble, dtype, dtype)
    # The features as they are, or with values replaced, or columns more than features.
    assert forest.columns_are_features == (missing != "mixed")
    workload = workload_of(forest, 100)
    config = STRATEGIES["bitvector"].default(workload, target)
    assert "exchanged_1_0" in rewrite_loops(STRATEGIES["bitvector"].module(workload, config)).script()
    # Neither aligned, nor followed by memory that may be read.
    size = 130 * features * np.dtype(dtype).itemsize
    room = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    X = np.frombuffer(room, dtype, offset=len(room) - size).reshape(130, features)
    X[...] = random_rows(rng, ensemble, 130, dtype)
    got = raw_scores("bitvector", ensemble, forest, config, X, 100, target=target)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, dtype))


@pytest.mark.parametrize(
    "name", sorted(set(STRATEGIES) - {"leaf_intervals"})
)  # which holds at most 128 columns
def test_every_strategy_takes_wide_rows(name: str) -> None:
    rng = np.random.default_rng(3)
    ensemble = random_ensemble(rng, features=150, oblivious=name == "oblivious", **WIDE)  # type: ignore[arg-type]
    forest = make_forest(ensemble, "float32", "float32")
    workload = workload_of(forest, 100)
    X = random_rows(rng, ensemble, 100, "float32")
    space = STRATEGIES[name].space(workload, CPU)
    for config in [STRATEGIES[name].default(workload, CPU), *space.sample(rng, 2)]:
        got = raw_scores(name, ensemble, forest, config, X, 100)
        np.testing.assert_allclose(
            got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"), err_msg=str(config)
        )


@pytest.mark.parametrize(("features", "refused"), [(128, False), (129, True)])
def test_leaf_intervals_holds_ranks_of_128_columns(features: int, refused: bool) -> None:
    ensemble = random_ensemble(
        np.random.default_rng(3), features=features, missing="left", trees=400, max_leaves=8
    )
    workload = workload_of(make_forest(ensemble, "float32", "float32"), 100)
    assert workload["numeric"] + workload["categorical"] == features
    reason = STRATEGIES["leaf_intervals"].refuse(workload)
    assert reason == ("trees test 129 columns; leaf_intervals holds at most 128" if refused else None)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("missing", ["left", "mixed"])
def test_blocks_are_no_wider_than_a_register_however_wide_the_products_are(
    missing: str, dtype: DType
) -> None:
    """A block of 64 rows, as wide as GEMM's products of bytes, took seconds to compile."""
    rng = np.random.default_rng(160)
    ensemble = random_ensemble(
        rng, features=160, compare_dtype=dtype, categories=missing == "mixed", **{**WIDE, "missing": missing}
    )
    forest = make_forest(ensemble, dtype, dtype)
    workload = workload_of(forest, 200)
    space = STRATEGIES["gemm"].space(workload, CPU)
    assert transposes_blocks(workload, space.sample(rng, 1)[0])
    config = max(space.sample(rng, 200), key=lambda config: int(config["lanes"]))
    module = rewrite_loops(STRATEGIES["gemm"].module(workload, config))
    widest = 16 if dtype == "float32" else 8
    assert int(config["lanes"]) > widest
    text = module.script()
    assert f"exchanged_{widest // 2}_0" in text and f"exchanged_{widest}_0" not in text
    assert text.count("T.Shuffle") == widest * {16: 4, 8: 3}[widest]
    X = random_rows(rng, ensemble, 200, dtype)
    got = raw_scores("gemm", ensemble, forest, config, X, 200)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, dtype))
