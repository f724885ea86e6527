"""Models of many features or splits that have kernels of their own for rows without missing values."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier

import hbtvm
from hbtvm.errors import InputError, PackageError
from hbtvm.runtime.package.file import from_bytes, to_bytes

pytestmark = pytest.mark.usefixtures("shared_workers")

FEATURES, FEW = 150, 8


@functools.cache
def trained(kind: str) -> Any:
    rng = np.random.default_rng(0)
    if kind == "many splits":
        X = rng.normal(size=(3000, FEW)).astype(np.float32)
        return RandomForestClassifier(100, max_depth=7, random_state=0).fit(
            X, X.sum(1) + rng.normal(size=3000) > 0
        )
    X = rng.normal(size=(400, FEATURES)).astype(np.float32)
    y = X[:, :40].sum(1) + X[:, 40:80].max(1)
    if kind == "forest":
        return RandomForestClassifier(40, max_depth=6, random_state=0).fit(X, y > y.mean())
    # Features that lack values in some rows send them left in some nodes, right in others.
    X[rng.random(X.shape) < 0.2] = np.nan
    return HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=12, min_samples_leaf=5).fit(X, y)


@functools.cache
def compiled(kind: str) -> hbtvm.Model:
    return hbtvm.compile(trained(kind), batch_sizes=(1, 100), threads=2)


def answers(kind: str, model: Any, X: np.ndarray) -> np.ndarray:
    found: np.ndarray = model.predict(X) if kind == "boosted" else model.predict_proba(X)
    return found


@pytest.mark.parametrize("kind", ["forest", "boosted", "many splits"])
@pytest.mark.parametrize("n", [1, 3, 100, 700, 9000])
def test_rows_with_and_without_missing_values(kind: str, n: int) -> None:
    model = compiled(kind)
    assert {kernel.missing for kernel in model.package.kernels} == {True, False}
    rng = np.random.default_rng(n)
    library = trained(kind)
    width = library.n_features_in_
    X = rng.normal(size=(n, width)).astype(np.float32)
    # None, one at either end, and many: large inputs are looked at block by block.
    many = [(r, c) for r in range(0, n, 2) for c in range(min(60, width))]
    for at in ([], [(n - 1, 7)], [(0, width - 1)], many):
        for place in at:
            X[place] = np.nan
        if at and kind == "boosted":
            X[n // 2, 3] = np.inf
        np.testing.assert_allclose(
            answers(kind, model, X), answers(kind, library, X), rtol=1e-5, atol=1e-6, err_msg=str(len(at))
        )


@pytest.mark.parametrize("row", [0, 4321, 8999])
def test_refused_values_are_named_by_their_place_among_all_rows(row: int) -> None:
    X = np.zeros((9000, FEATURES), np.float32)
    X[row, 5] = -np.inf
    X[:, 6] = np.nan
    with pytest.raises(InputError, match=f"column 5, row {row}: got infinity"):
        compiled("forest").predict(X)


def test_kernels_for_complete_rows_are_told_and_kept(tmp_path: Path) -> None:
    model = compiled("forest")
    model.save(tmp_path / "model.tar")
    loaded = hbtvm.load(tmp_path / "model.tar")
    assert [k.missing for k in loaded.package.kernels] == [False, False, True, True]
    assert "float32, no NaN" in loaded.summary()
    only = tuple(kernel for kernel in model.package.kernels if not kernel.missing)
    with pytest.raises(PackageError, match="no kernel takes missing values"):
        from_bytes(to_bytes(dataclasses.replace(model.package, kernels=only)))


def test_a_search_tunes_for_complete_rows(tmp_path: Path) -> None:
    found = hbtvm.search(
        trained("forest"), batch_sizes=(50,), trials=3, threads=1, strategies=["tree_traversal"]
    )
    seconds = {kernel.missing: kernel.seconds for kernel in found.model.package.kernels}
    assert seconds[False] is not None and seconds[True] is None
    X = np.random.default_rng(1).normal(size=(50, FEATURES))
    X[3] = np.nan
    np.testing.assert_allclose(found.model.predict_proba(X), trained("forest").predict_proba(X), rtol=1e-5)
