"""What is read of a model that predicts, computed by the references of its operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.pipelines import read_predictor
from hbtvm.frontends.registry import READERS
from hbtvm.graph.network import of_tables
from hbtvm.graph.predictor import Predictor
from tests.frontends.transformers.oracle import raw_of, record_of

METHODS = {"proba": "predict_proba", "decision": "decision_function", "score": "score_samples"}


def predictor_of(model: Any) -> Predictor:
    """The operators of a fitted model."""
    return read_predictor(record_of(model), READERS)


def outputs(model: Any, X: Any) -> dict[str | None, Any]:
    """All outputs of a fitted model for rows, by name; None is what its ``predict`` returns."""
    predictor = predictor_of(model)
    spec = predictor.output_spec()
    scores = of_tables([predictor.scores()], raw_of(X))[0]
    return {name: spec.maker(name)(scores) for name in (None, *spec.available())}


def check(model: Any, X: Any, tolerance: float = 1e-9) -> Predictor:
    """Compare all that a model offers with what is read of it; return that."""
    found = outputs(model, X)
    compare(found[None], model.predict(X), tolerance)
    for name, method in METHODS.items():
        assert (name in found) == hasattr(model, method), name
        if name in found:
            compare(found[name], getattr(model, method)(X), tolerance)
    return predictor_of(model)


def compare(found: Any, expected: Any, tolerance: float) -> None:
    """Compare one output: labels must be equal, numbers nearly."""
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, tolerance)
        return
    expected = np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if expected.dtype.kind == "f" and not np.array_equal(expected, np.rint(expected)):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)
