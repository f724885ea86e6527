"""``score_samples`` of transformers against scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA, FactorAnalysis, IncrementalPCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import InputError, PackageError
from hbtvm.frontends import from_object
from hbtvm.runtime.package.file import from_bytes, to_bytes
from tests.frontends.predictors.data import ROWS, X
from tests.frontends.predictors.oracle import found

MODELS = {
    "two": PCA(2),
    "share": PCA(0.9),
    "all": PCA(),
    "whitened": PCA(3, whiten=True),
    "all whitened": PCA(whiten=True),
    "one": PCA(1),
    "factors": FactorAnalysis(2),
    "all factors": FactorAnalysis(6),
    "scaled": make_pipeline(StandardScaler(), PCA(2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_densities(name: str) -> None:
    model = MODELS[name].fit(X)
    graph = from_object(model)
    assert graph.scores is not None and graph.output.kind == "transformer"
    assert graph.scores.output.outputs == ("score",)
    for rows, tolerance in ((ROWS, 1e-9), (30 * ROWS, 1e-9), (ROWS.astype("f4"), 1e-4), (ROWS[:1], 1e-9)):
        expected = model.score_samples(rows)
        np.testing.assert_allclose(found(graph.scores, rows, "score"), expected, rtol=tolerance)


@pytest.mark.parametrize("name", ["two", "all", "whitened", "factors"])
def test_densities_that_were_fitted_on_float32(name: str) -> None:
    model = MODELS[name].fit(X.astype(np.float32))
    graph = from_object(model)
    assert graph.scores is not None
    for rows in (ROWS, ROWS.astype(np.float32)):
        # The library inverts covariances in float32.
        np.testing.assert_allclose(found(graph.scores, rows, "score"), model.score_samples(rows), rtol=1e-4)


def test_what_has_no_density_still_transforms() -> None:
    singular = PCA().fit(X)
    singular.explained_variance_[:] = 0.0
    assert singular.noise_variance_ == 0.0
    for model in (IncrementalPCA(2).fit(X), singular):
        graph = from_object(model)
        assert graph.scores is None
        np.testing.assert_allclose(found(graph, ROWS), model.transform(ROWS), rtol=1e-7, atol=1e-9)


def test_in_a_package() -> None:
    model = PCA(2).fit(X)
    compiled = hbtvm.compile(model, batch_sizes=8, threads=1)
    for loaded in (compiled, hbtvm.load(to_bytes(compiled.package))):
        for rows in (ROWS, ROWS[:1], np.round(ROWS).astype(np.int16)):
            np.testing.assert_allclose(loaded.score_samples(rows), model.score_samples(rows), rtol=1e-5)
            np.testing.assert_allclose(loaded.transform(rows), model.transform(rows), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="does not predict"):
        compiled.predict(ROWS)
    swapped = replace(compiled.package, transform=compiled.package.scores)
    with pytest.raises(PackageError, match=r"transform\.tar: it predicts"):
        from_bytes(to_bytes(swapped))
