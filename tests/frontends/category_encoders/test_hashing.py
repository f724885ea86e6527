"""HashingEncoder against the library, by itself and before a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import InputError
from tests.frontends.category_encoders.test_encoders import Y, ce, check, fitted, frame_of

COLUMNS = ["text", "category", "none", "seldom", "string", "whole"]


def rows_of(seed: int, more: bool = False) -> pd.DataFrame:
    return frame_of(seed, more).drop(columns=["objects"])


@pytest.mark.parametrize(
    "settings",
    [{}, {"n_components": 3, "hash_method": "sha256"}, {"drop_invariant": True, "n_components": 50}],
    ids=str,
)
def test_counts_of_hashes(settings: dict[str, Any]) -> None:
    encoder = fitted("HashingEncoder", rows_of(0), cols=COLUMNS, max_process=1, **settings)
    check(encoder, rows_of(0))
    check(encoder, rows_of(1, more=True))


def test_a_frame_and_a_model(tmp_path: Any) -> None:
    rows = rows_of(1, more=True)
    encoder = ce.HashingEncoder(cols=COLUMNS, max_process=1).fit(rows_of(0))
    result = hbtvm.compile(encoder).transform(rows)
    pd.testing.assert_frame_equal(result, encoder.transform(rows), check_dtype=False)
    pipeline = make_pipeline(encoder, StandardScaler(), LogisticRegression()).fit(rows_of(0), Y)
    hbtvm.compile(pipeline, batch_sizes=1).save(tmp_path / "model.hbtvm")
    compiled = hbtvm.load(tmp_path / "model.hbtvm")
    for some in (rows, rows[:1]):
        np.testing.assert_allclose(compiled.predict_proba(some), pipeline.predict_proba(some), rtol=1e-6)


def test_values_of_other_types() -> None:
    frame = frame_of(0)[["objects"]]
    encoder = fitted("HashingEncoder", frame, cols=["objects"], max_process=1)
    check(encoder, frame[[not isinstance(value, float) for value in frame["objects"]]])
    with pytest.raises(InputError, match=r"expected texts or integers as in training, got 2\.5"):
        hbtvm.compile(encoder).transform(frame)
