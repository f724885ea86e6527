"""Leaf values as digits, looked up as bytes, on every kind of CPU that this machine can stand for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.cpu import missing_features
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from hbtvm.strategies.base import tile_trees
from hbtvm.strategies.trees.digits import DIGITS, digit_tables
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import raw_scores, tolerance

OBLIVIOUS = STRATEGIES["oblivious"]
TARGETS: dict[str, Any] = {
    "avx2": {"kind": "llvm", "mcpu": "x86-64-v3"},
    "avx512": {"kind": "llvm", "mcpu": "x86-64-v4"},
    "vbmi": {"kind": "llvm", "mcpu": "icelake-server"},
}


@pytest.mark.parametrize(
    ("name", "leaves", "dtype", "tree_tile"),
    [
        ("avx2", 64, "float32", 64),
        ("avx2", 20, "float64", 2),
        ("avx512", 64, "float32", 16),
        ("vbmi", 64, "float64", 128),
        ("vbmi", 256, "float32", 64),
        ("vbmi", 100, "float32", 64),
    ],
)
def test_scores_are_the_references(name: str, leaves: int, dtype: Any, tree_tile: int) -> None:
    target = resolve(TARGETS[name])
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(leaves)
    ensemble = random_ensemble(
        rng, trees=70, max_leaves=leaves, groups=2, compare_dtype=dtype, missing="mixed", oblivious=True
    )
    forest = make_forest(ensemble, dtype, "float32")
    X = random_rows(rng, ensemble, 150, dtype)
    workload = workload_of(forest, 100)
    config = OBLIVIOUS.default(workload, target)
    assert config["leaf_lookup"] == "digits"
    config = {**config, "tree_tile": tree_tile}
    assert OBLIVIOUS.space(workload, target).contains(config)
    got = raw_scores("oblivious", ensemble, forest, config, X, 100, target=target)
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32") / 10)


def test_digits_give_the_values_back() -> None:
    ensemble = random_ensemble(np.random.default_rng(0), trees=5, max_leaves=8, oblivious=True)
    value = np.random.default_rng(1).normal(size=(5, 100)).astype(np.float32)
    value[3] = 2.5
    tiles = tile_trees(make_forest(ensemble, "float32", "float32"), 4)
    tables = digit_tables(value, tiles)
    weights = 128.0 ** np.arange(DIGITS)
    number = np.einsum("ogtpl,p->ogtl", tables["digit"].astype(np.float64), weights)
    sums = (number * tables["scale"][:, :, None, None, 0]).sum(2) + tables["scale"][:, :, 1, None]
    np.testing.assert_allclose(sums[0, 0, :100], value[:4].astype(np.float64).sum(0), atol=1e-7)
    np.testing.assert_allclose(sums[1, 0, :100], value[4], atol=1e-7)
    assert tables["digit"].min() == 0


def test_values_of_very_different_sizes_stay_floats() -> None:
    rng = np.random.default_rng(2)
    ensemble = random_ensemble(rng, trees=20, max_leaves=16, oblivious=True)
    assert workload_of(make_forest(ensemble, "float32", "float32"), 100).get("leaf_digits") is True
    assert "leaf_digits" not in workload_of(make_forest(ensemble, "float32", "float64"), 100)
    value = ensemble.value.copy()
    value[np.flatnonzero(ensemble.left < 0)[3]] = 1e6
    for wide in (replace(ensemble, value=value), replace(ensemble, value=np.full_like(value, np.inf))):
        workload = workload_of(make_forest(wide, "float32", "float32"), 100)
        assert "leaf_digits" not in workload
        assert OBLIVIOUS.default(workload, resolve(TARGETS["avx2"]))["leaf_lookup"] != "digits"
    outputs = random_ensemble(rng, trees=20, max_leaves=16, width=2, oblivious=True)
    assert "leaf_digits" not in workload_of(make_forest(outputs, "float32", "float32"), 100)
