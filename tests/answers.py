"""A library's methods, and how what hbtvm gives is compared with what they return."""

from __future__ import annotations

from typing import Any

import numpy as np

METHODS = {"proba": "predict_proba", "decision": "decision_function", "score": "score_samples"}


def same(got: Any, expected: Any, rtol: float, atol: float) -> None:
    """The same shape, labels and type of labels, and numbers that are close."""
    if isinstance(expected, list):
        assert isinstance(got, list) and len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other, rtol, atol)
        return
    assert got.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    else:
        # Of strings, how long they may be is no matter.
        assert got.dtype == expected.dtype or got.dtype.kind == expected.dtype.kind == "U"
        np.testing.assert_array_equal(got, expected)
