"""The hand-written kernels of `benchmarks.bound` compute what numpy computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks import synthetic
from benchmarks.bound import kernels
from benchmarks.bound.__main__ import sums
from hbtvm.compiler.candidates.tasks import forests_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.strategies.trees.forest import Forest

Make = Callable[[Forest, np.ndarray, str], dict[str, Callable[[], np.ndarray]]]

FORESTS: dict[str, tuple[Make, Graph]] = {
    "leaves": (kernels.bitvector_kernels, synthetic.graph(trees=6, leaves=31, features=28)),
    "deep": (kernels.deep_kernels, synthetic.grown(trees=6, leaves=900, features=28)),
}


@pytest.mark.parametrize("name", FORESTS)
def test_hand_written_kernels_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := kernels.missing_extensions("avx2"):
        pytest.skip(f"the machine lacks {', '.join(missing)}")
    # Fewer variants: each is compiled.
    monkeypatch.setattr(kernels, "compilers", lambda: ["gcc"])
    monkeypatch.setattr(kernels, "_VECTORS", (1,))
    make, graph = FORESTS[name]
    ensemble = graph.anchor
    assert isinstance(ensemble, TreeEnsemble)
    X = np.random.default_rng(0).normal(size=(2100, 28)).astype(np.float32)
    calls = make(forests_of(ensemble, "float32")[0], X, "avx2")
    assert len(calls) >= 6
    for variant, call in calls.items():
        np.testing.assert_allclose(call(), sums(ensemble, X), rtol=1e-5, atol=1e-5, err_msg=variant)
