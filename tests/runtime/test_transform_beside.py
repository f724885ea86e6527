"""Models that predict and whose libraries also transform: one package gives both."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.cross_decomposition import PLSRegression
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import RFE
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.cli.main import main
from hbtvm.errors import InputError, PackageError
from hbtvm.frontends import from_object
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from tests.answers import same
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X


def compiled(model: Any) -> Model:
    return hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)


def test_both_from_one_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_pipeline(StandardScaler(), KMeans(4, n_init=1, random_state=0)).fit(X)
    made = compiled(model)
    made.save(tmp_path / "model.tar")
    for one in (made, hbtvm.load(tmp_path / "model.tar"), pickle.loads(pickle.dumps(made))):
        for rows in (ROWS, ROWS[:1]):
            same(one.predict(rows), model.predict(rows), 0, 0)
            same(one.transform(rows), model.transform(rows), 1e-9, 1e-11)
    np.save(tmp_path / "rows.npy", ROWS)
    files = [str(tmp_path / name) for name in ("model.tar", "rows.npy", "out.npy")]
    assert main(["predict", *files[:2], "-o", files[2], "--output", "transform"]) == 0
    same(np.load(files[2]), model.transform(ROWS), 1e-9, 1e-11)
    assert main(["predict", *files[:2], "--output", "proba"]) == 2
    assert "this clusterer has transform" in capsys.readouterr().err


def test_which_models_have_both() -> None:
    labels = TARGETS["several"]
    search = GridSearchCV(LinearDiscriminantAnalysis(), {"n_components": [1]}, cv=2).fit(X, labels)
    kept = RFE(LogisticRegression(), n_features_to_select=2).fit(X, labels)
    partial = PLSRegression(2).fit(X, NUMBERS)
    for model in (search, kept, partial):
        made = compiled(model)
        same(made.transform(ROWS), model.transform(ROWS), 1e-9, 1e-11)
        same(made.predict(ROWS), model.predict(ROWS), 1e-9, 1e-11)
    least = LinearDiscriminantAnalysis(solver="lsqr").fit(X, labels)
    assert from_object(least).transform is None
    assert from_object(Ridge().fit(X, NUMBERS)).transform is None
    assert from_object(StandardScaler().fit(X)).transform is None


def test_models_that_only_predict() -> None:
    made = compiled(Ridge().fit(X, NUMBERS))
    assert made.beside is None
    with pytest.raises(InputError, match="Ridge predicts; expected a pipeline"):
        made.transform(ROWS)


def test_damaged_packages() -> None:
    package = compiled(KMeans(3, n_init=1, random_state=0).fit(X)).package
    assert from_bytes(to_bytes(package)).transform is not None
    predicts = replace(package, transform=replace(package, transform=None))
    with pytest.raises(PackageError, match=r"transform\.tar: it predicts"):
        from_bytes(to_bytes(predicts))
    inner = package.transform
    assert inner is not None
    with pytest.raises(PackageError, match="within a package"):
        from_bytes(to_bytes(replace(package, transform=replace(inner, transform=inner))))
