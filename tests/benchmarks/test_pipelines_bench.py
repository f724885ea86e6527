"""The benchmark of pipelines: its reckoning, and that what it generates compiles and agrees."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from benchmarks.pipelines import generated, operators, predictors, report
from benchmarks.pipelines.__main__ import _agreement
from benchmarks.pipelines.cases import CASES
from benchmarks.pipelines.data import CATEGORIES, NUMBERS, adult, adult_target

SAME, OTHER = {"difference": 1e-7, "labels_off": 0.0}, {"difference": 0.5, "labels_off": 0.1}


def figure(seconds: float, agrees: Any = SAME) -> dict[str, Any]:
    return {"seconds": seconds, "agrees": agrees}


CELL = {
    "sklearn": {"frame": figure(8e-3)},
    "onnxruntime": {"frame": figure(4e-4, OTHER), "arrays": figure(1e-4, OTHER)},
    "hummingbird": {"frame": {"failed": "strings"}},
    "hbtvm": {"frame": figure(4e-5), "arrays": figure(2e-5), "dict": figure(1e-5)},
}


def test_peers_with_other_answers_are_not_raced():
    assert report.ratio(CELL, "frame") == pytest.approx(200)
    better = {**CELL, "onnxruntime": {"frame": figure(4e-4), "arrays": figure(1e-4)}}
    assert report.ratio(better, "frame") == pytest.approx(10)
    assert report.ratio(better, "arrays") == pytest.approx(5)
    assert report.ratio({**CELL, "hbtvm": {"frame": figure(4e-5, OTHER)}}, "frame") is None


def test_reports_mark_other_answers():
    results = {
        "cells": {f"{name}/1/1": CELL for name in CASES},
        "versions": {"sklearn": {"scikit-learn": "1"}},
    }
    text = report.markdown(results)
    assert text.count("≠") == 1 + 2 * len(CASES)
    assert text.count("200.0x") == len(CASES) + 1
    assert "scikit-learn 1" in text


def test_agreement_tells_labels_and_numbers_apart():
    expected = np.array([[0.4, 0.6], [0.9, 0.1]])
    assert _agreement(expected + 1e-9, expected)["difference"] < 1e-7
    assert _agreement(expected[:, ::-1], expected)["labels_off"] == 1.0
    assert _agreement(expected[:, 1:], expected)["difference"] < 1e-12
    assert _agreement(np.zeros((2, 3)), expected)["labels_off"] == 1.0


def test_adult_has_the_shape_that_it_tells():
    frame = adult(500, missing_strings=True)
    assert list(frame.columns) == [*NUMBERS, *CATEGORIES]
    assert frame["age"].isna().any() and frame["workclass"].isna().any()
    assert 0.2 < adult_target(frame).mean() < 0.3


@pytest.mark.parametrize("seed", [3, 24, 38, 51, 59, 72, 74, 90])
def test_generated_pipelines_compile_and_agree(seed: int):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, rows = generated.fitted(seed)
        compiled = hbtvm.compile(model, batch_sizes=100, threads=1, dtype="float64")
        assert generated.compare(model, compiled, rows) is None


def test_differences_are_told():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, rows = generated.fitted(20)
        other, _ = generated.fitted(20)
        other.fit(rows, np.arange(len(rows)) % 2)
        compiled = hbtvm.compile(other, batch_sizes=100, threads=1)
    assert generated.compare(model, compiled, rows) is not None


def test_operators_and_last_steps_can_be_made():
    rng = np.random.default_rng(0)
    made = [one.make(rng) for one in predictors.lasts()]
    made += [make(rng) for narrow in (False, True) for make in operators.imputers(narrow)]
    plain = (*operators.scalers(True), *operators.encoders(), *operators.vectorizers())
    made += [make(rng) for make in plain]
    for target in ("classes", "numbers", "none"):
        made += [make(rng) for make in (*operators.selections(target), *operators.projections(target))]
    assert len({type(one) for one in made}) > 95


def test_neighbours_are_compared_where_distances_decide():
    rows = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]})
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(1)).fit(rows, [0, 1, 0, 1])
    asked = pd.DataFrame({"a": [0.5, 0.6, 1.5]})
    assert generated._decided(model, asked)["a"].tolist() == [0.6]


def test_outcomes_are_counted_by_operator():
    found = [
        generated.Outcome(0, "agree", ["PCA", "SVC"], ""),
        generated.Outcome(1, "refused", ["PCA"], "step 'a' is new"),
        generated.Outcome(2, "refused", ["NMF"], "step 'a' is new"),
    ]
    text = generated.report(found)
    assert "| PCA       | 1     | 0      | 1       |" in text
    assert "- 2 x step 'a' is new ([1, 2])" in text
