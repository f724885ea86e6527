"""The stand-in that Hummingbird's tests run against, and what is told of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import OneHotEncoder

from benchmarks.hummingbird import reasons, standin
from benchmarks.hummingbird.__main__ import report

X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)


@pytest.fixture
def ml() -> Iterator[Any]:
    """The modules as tests import them."""
    before = {name: module for name, module in sys.modules.items() if name.startswith("hummingbird")}
    standin.install()
    import hummingbird.ml

    yield hummingbird.ml
    for name in [name for name in sys.modules if name.startswith("hummingbird")]:
        del sys.modules[name]
    sys.modules.update(before)


def test_models_are_compiled_saved_and_loaded(ml: Any, tmp_path: Path):
    model = RandomForestClassifier(4, max_depth=3, random_state=0).fit(X, np.arange(80) % 3)
    converted = ml.convert(model, "torch.jit", X, extra_config={ml.constants.TREE_IMPLEMENTATION: "gemm"})
    np.testing.assert_allclose(converted.predict_proba(X), model.predict_proba(X), rtol=1e-6)
    assert type(converted.model._operators[0]).__name__ == "GEMMDecisionTreeImpl"
    digest = converted.save(str(tmp_path / "forest"))
    loaded = ml.TorchContainer.load(str(tmp_path / "forest"), digest=digest)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(RuntimeError):
        ml.load(str(tmp_path / "forest"), digest="other")
    with pytest.raises(standin.NotApplicable):
        converted._session.run()


def test_transformers_take_columns_apart_and_give_dense_rows(ml: Any):
    codes = np.arange(12).reshape(6, 2) % 3
    model = OneHotEncoder().fit(codes)
    converted = ml.convert_batch(model, "onnx", codes)
    np.testing.assert_array_equal(
        converted.transform(codes[:, :1], codes[:, 1:]), model.transform(codes).toarray()
    )
    with pytest.raises(AssertionError, match="was not in the training data"):
        converted.transform(codes + 7)


def test_refusals_have_hummingbirds_names(ml: Any):
    with pytest.raises(NotFittedError):
        ml.convert(RandomForestClassifier(), "torch")
    with pytest.raises(standin.MissingConverter):
        ml.convert(object(), "torch")
    with pytest.raises(standin.MissingBackend):
        ml.convert(OneHotEncoder(), "scala")


def test_reasons_are_found_by_file_and_test():
    told = reasons.reason("tests/test_backends.py::TestBackends::test_onnx")
    assert told is not None and "sample" in told
    assert reasons.reason("test_backends.py::TestBackends::test_onnx_save_load") is None


def test_outcomes_are_counted_by_file_and_reason():
    outcomes = {
        "test_a.py": [
            {"test": "test_a.py::A::test_one", "outcome": "passed", "told": ""},
            {"test": "test_a.py::A::test_two", "outcome": "failed", "told": "UnsupportedModel: no"},
        ],
        "test_b.py": [{"test": "test_b.py::B::test_three", "outcome": "not applicable", "told": "Spark"}],
    }
    text = report(outcomes)
    assert "| together  | 1      | 1      | 1              |" in text
    assert "- 1 x UnsupportedModel: no\n  (test_a.py::test_two)" in text and "1 x Spark" in text
