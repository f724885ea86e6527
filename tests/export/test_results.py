"""Libraries for C compute what packages compute in Python, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import hbtvm
from hbtvm.compiler.exporting.methods import label_names, methods_of
from hbtvm.runtime.model import Model
from tests.exported import Loaded, assert_same

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(300, 4)), 3)
TWO = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
THREE = np.array(["low", "middle", "high"])[TWO + (X[:, 2] > 0.4)]
NUMBER = X[:, 0] ** 2 + X[:, 1]
HOLED = np.where(RNG.random(X.shape) < 0.1, np.nan, X)

MODELS: dict[str, Callable[[], Any]] = {
    "lightgbm_binary": lambda: lgb.LGBMClassifier(n_estimators=8, verbose=-1).fit(HOLED, TWO),
    "lightgbm_classes": lambda: lgb.LGBMClassifier(n_estimators=4, verbose=-1).fit(HOLED, THREE),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=5, missing=-1.0).fit(np.round(X), NUMBER),
    "forest_of_targets": lambda: RandomForestClassifier(4, max_depth=5, random_state=0).fit(
        X, np.stack([THREE, TWO.astype(str)], axis=1)
    ),
    "forest": lambda: RandomForestRegressor(4, random_state=0).fit(X, np.stack([NUMBER, -X[:, 2]], axis=1)),
    "hist_boosting": lambda: HistGradientBoostingRegressor(loss="poisson", max_iter=5).fit(HOLED, TWO),
    "isolation": lambda: IsolationForest(n_estimators=5, random_state=0).fit(X),
    "linear": lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, THREE),
    "poisson": lambda: make_pipeline(SelectKBest(k=2), MinMaxScaler(), PoissonRegressor()).fit(X, TWO),
    "neighbours": lambda: KNeighborsClassifier(3).fit(X, TWO > 0),
    "clusters": lambda: KMeans(3, n_init=1, random_state=0).fit(X),
    "vectors": lambda: SVC(gamma="scale", max_iter=50, random_state=0).fit(X, THREE),
    "voting": lambda: VotingClassifier(
        [("f", RandomForestClassifier(3, random_state=0)), ("l", LogisticRegression())], voting="soft"
    ).fit(X, THREE),
    "scaler": lambda: make_pipeline(StandardScaler(), MinMaxScaler((-1, 2))).fit(X),
    "components": lambda: PCA(2).fit(X),
    "isotonic": lambda: IsotonicRegression(out_of_bounds="clip").fit(X[:, 0], NUMBER),
}

EXPLAINED = ("lightgbm_classes", "xgboost", "linear", "clusters")  # clusters have no contributions
COLUMNS = {"isotonic": 1}
TWO_KERNELS = ("lightgbm_binary", "voting", "clusters")
TAKE_NAN = ("lightgbm_binary", "lightgbm_classes", "xgboost", "hist_boosting", "forest")


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_as_in_python(name: str, tmp_path: Path) -> None:
    sizes = (1, 64) if name in TWO_KERNELS else (64,)
    compiled = hbtvm.compile(MODELS[name](), batch_sizes=sizes, threads=2, explain=name in EXPLAINED)
    made = hbtvm.export(compiled, tmp_path / "out", name)
    assert not made.lacking
    assert ("contributions" in made.functions) == (name in EXPLAINED[:-1])
    # Read again, since packages are what is exported.
    model = Model(compiled.package, threads=2)
    loaded = Loaded(tmp_path / "out" / f"lib{name}.so", 2)
    for n in (1, 2, 37, 1000, 10_000):
        rows = np.random.default_rng(n).normal(size=(n, COLUMNS.get(name, X.shape[1]))).round(2)
        if name in TAKE_NAN and n > 2:
            rows[::3, 1] = np.nan
            rows[1::5, 2] = -1.0
        assert_same(model, loaded, rows, (0, 1, 2) if n == 10_000 else (2,))
    labels = label_names(model.package, methods_of(model.package)[0])
    if len(labels) > 1:
        assert loaded.function("targets")() == len(labels)
        for target, own in enumerate(labels):
            assert loaded.function("classes")(target) == len(own)
            found = [loaded.function("class_name")(target, i) for i in range(len(own))]
            assert [one.decode() for one in found] == own
            assert loaded.function("class_name")(target, len(own)) is None
        assert loaded.function("class_name")(len(labels), 0) is None
    loaded.close()
