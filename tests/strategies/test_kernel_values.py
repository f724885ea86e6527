"""Radial kernels in float32: where they are used, and how near their sums are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

import hbtvm
from hbtvm.compiler.candidates.tasks import operands_of
from hbtvm.graph.networks.network import Network
from hbtvm.run import read_model
from hbtvm.strategies.network.kernel_values import in_float32

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

RNG = np.random.default_rng(0)
# Far from 0, where squared distances made of products would cancel to nothing.
X = RNG.normal(size=(300, 6)) * [1, 2, 1, 3, 1, 1] + [1000, -500, 0, 0, 20, 0]
NOISE = RNG.normal(size=300)
TARGET = (X[:, 0] - 1000) ** 2 + X[:, 2] + 0.1 * NOISE
LABEL = np.array(["a", "b", "c"])[(X[:, 2] + NOISE > 0).astype(int) + (X[:, 5] > 1)]
NEW = (X[:200] + 0.2 * RNG.normal(size=(200, 6))).astype(np.float32)

MODELS: dict[str, Any] = {
    "SVR": SVR(gamma=0.05).fit(X, TARGET),
    "SVC": SVC(gamma=0.05).fit(X, LABEL),
    "scaled": make_pipeline(StandardScaler(), SVC()).fit(X, LABEL),
    "OneClassSVM": OneClassSVM(nu=0.3, gamma=0.05).fit(X),
    "KernelPCA": KernelPCA(3, kernel="rbf", gamma=0.02).fit(X),
    "Nystroem": Nystroem(gamma=0.02, n_components=200, random_state=0).fit(X),
}


def in_single(model: Any) -> bool:
    graph = read_model(model)
    return any(
        node.get("single") and node["kind"] == "distance"
        for operand in operands_of(graph, "float32")
        for node in operand.nodes  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("name", MODELS)
def test_sums_are_near_those_of_the_library(name: str) -> None:
    model = MODELS[name]
    assert in_single(model) == (name != "Nystroem")
    compiled = hbtvm.compile(model, batch_sizes=[1, 200], threads=1)
    method = "transform" if hasattr(model, "transform") else "predict"
    decide = ("decision_function",) if hasattr(model, "decision_function") else ()
    # (So far from 0, the library's own distances are rounded to 1e-7 of the sums.)
    for rows, tolerance in ((NEW, 1e-5), (NEW.astype(np.float64), 1e-6)):
        for way in (method, *decide):
            want = getattr(model, way)(rows)
            got = getattr(compiled, way)(rows)
            alone = getattr(compiled, way)(rows[:1])
            if want.dtype.kind in "Ui":
                assert got.tolist() == want.tolist()
            else:
                scale = np.sqrt((want**2).mean())
                np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)
                np.testing.assert_allclose(alone, want[:1], rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (SVR(gamma=5.0), "exponents are large"),
        (SVR(C=1e6, epsilon=1e-4), "sums cancel"),
        (SVR(kernel="poly"), "it is no radial kernel"),
    ],
)
def test_models_that_float32_would_not_do_stay_in_float64(model: SVR, why: str) -> None:
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    model.fit(scaled, TARGET)
    assert not in_single(model), why
    assert in_single(SVR(gamma=0.1).fit(scaled, TARGET))


def test_float64_is_kept_where_it_is_asked_for() -> None:
    compiled = hbtvm.compile(MODELS["SVR"], batch_sizes=200, threads=1, dtype="float64")
    np.testing.assert_allclose(compiled.predict(NEW), MODELS["SVR"].predict(NEW), rtol=0, atol=1e-8)


def test_the_network_that_is_made_is_the_same_function() -> None:
    graph = read_model(MODELS["SVR"])
    assert isinstance(graph.anchor, Network)
    changed, chosen = in_float32(graph.anchor.output)
    assert len(chosen) == 3
    own, other = Network(6, changed), graph.anchor
    np.testing.assert_allclose(own.reference(NEW), other.reference(NEW), rtol=1e-5)
