"""`Model.compare`: packages against live models of each library, right ones and wrong ones."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401  (the oracle of ONNX models)
import pandas as pd
import pytest
import xgboost as xgb
from scipy import sparse
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.comparison import compare
from hbtvm.comparison.closing import show_closing
from hbtvm.comparison.differences import agreement, ties_of
from hbtvm.comparison.library import Live
from hbtvm.comparison.random_rows import random_rows
from hbtvm.comparison.result import Comparison, speedup
from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from tests import models

pytestmark = pytest.mark.usefixtures("shared_workers")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "SECONDS", 0.005)


@functools.cache
def compiled(name: str) -> hbtvm.Model:
    return hbtvm.compile(models.ZOO[name](), batch_sizes=100, threads=1, strategies="tree_traversal")


def names(comparison: Comparison) -> list[str]:
    return [output.output for output in comparison.outputs]


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("sk_forest_two", ["predict", "predict_proba"]),
        ("sk_tree_pair_labels", ["predict", "predict_proba"]),
        ("sk_isolation_some", ["predict", "decision_function", "score_samples"]),
        ("xgb_three", ["predict", "predict_proba", "raw"]),
        ("xgb_ranker", ["predict", "raw"]),
        ("lgb_ranker", ["predict", "raw"]),
    ],
)
def test_estimators(name: str, outputs: list[str]) -> None:
    comparison = compiled(name).compare(models.ZOO[name](), models.data()[0])
    assert names(comparison) == outputs and comparison.agrees, comparison
    assert [timing.rows for timing in comparison.timings] == [1, 100, 240]
    assert all(timing.library > 0 and timing.package > 0 for timing in comparison.timings)
    assert all((output.rows, output.equal) == (240, 240) for output in comparison.outputs)
    labels = name in ("sk_forest_two", "sk_tree_pair_labels", "sk_isolation_some", "xgb_three")
    assert (comparison.outputs[0].largest is None) == labels


def test_boosters_with_several_columns() -> None:
    booster = models.ZOO["xgb_three"]().get_booster()
    model = hbtvm.compile(booster, batch_sizes=100, threads=1, strategies="tree_traversal")
    comparison = model.compare(booster, models.data()[0])
    assert names(comparison) == ["predict", "raw"] and comparison.agrees
    assert booster.save_config().count('"nthread"') == 1  # it is as before


def test_another_model_differs() -> None:
    forest = RandomForestClassifier(7, max_depth=5, random_state=2)
    forest.fit(models.data()[0], models.targets("yes_no"))
    comparison = compiled("sk_forest_two").compare(forest, models.data()[0])
    assert not comparison.agrees
    labels, probabilities = comparison.outputs
    first = labels.examples[0]
    X = models.data()[0]
    assert first.library == forest.predict(X)[first.row] != first.package
    assert labels.rows - labels.equal == (forest.predict(X) != compiled("sk_forest_two").predict(X)).sum()
    assert len(labels.examples) == 5 and first.column is None
    assert probabilities.largest is not None and probabilities.largest > 1e-2
    text = repr(comparison)
    assert "DIFFERS from the library in predict, predict_proba" in text
    assert repr(first.library) in text and f"{first.row:,}" in text
    html = comparison._repr_html_()
    assert "<table>" in html and "&#x27;no&#x27;" in html


def test_pipelines_of_frames() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(200) < 0.2, np.nan, rng.normal(40, 9, 200)),
            "city": rng.choice(["Bern", "Oslo"], 200),
            "text": rng.choice(["good film", "bad film", "good"], 200),
        }
    )
    y = rng.integers(0, 3, 200)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (OneHotEncoder(), ["city"]),
        (TfidfVectorizer(), "text"),
    )
    pipeline = make_pipeline(columns, LogisticRegression(n_jobs=None)).fit(frame, y)
    model = hbtvm.compile(pipeline, batch_sizes=100, threads=1)
    comparison = model.compare(pipeline, frame)
    assert names(comparison) == ["predict", "predict_proba", "decision_function"] and comparison.agrees
    assert comparison.library.endswith(" Pipeline")
    with pytest.raises(InputError, match="Pipeline refuses the rows in predict: "):
        model.compare(pipeline, frame.drop(columns="city"))
    assert random_rows(from_object(pipeline), 10) is None  # of texts
    numbers = make_pipeline(columns.transformers_[0][1], LogisticRegression())
    numbers.fit(frame[["age"]], y)
    rows = random_rows(from_object(numbers), 10)
    assert rows.shape == (10, 1) and list(rows.columns) == ["age"]


def test_transformers_and_clusters() -> None:
    texts = ["a good film", "a bad film", "no film"] * 40
    vectorizer = TfidfVectorizer().fit(texts)
    comparison = hbtvm.compile(vectorizer).compare(vectorizer, texts)
    assert names(comparison) == ["transform"] and comparison.agrees
    clusters = KMeans(3, n_init=1, random_state=0).fit(models.data()[0])
    comparison = hbtvm.compile(clusters, batch_sizes=100, threads=1).compare(clusters, models.data()[0])
    assert names(comparison) == ["predict", "transform"] and comparison.agrees


def test_onnx() -> None:
    X = models.data()[0].astype(np.float32)
    regression = LogisticRegression().fit(X, models.targets("three"))
    for zipmap in (True, False, "columns"):
        proto = to_onnx(regression, X[:1], options={"zipmap": zipmap}, target_opset=18)
        comparison = hbtvm.compile(proto, batch_sizes=100, threads=1).compare(proto, X)
        assert names(comparison) == ["predict", "predict_proba"] and comparison.agrees, zipmap
    assert comparison.library.startswith("ONNX Runtime ")


def test_tune_ends_with_the_comparison(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tune = functools.partial(
        hbtvm.tune,
        models.ZOO["xgb_three"](),
        log=tmp_path / "log.jsonl",
        batch_sizes=100,
        trials=1,
        threads=1,
        strategies="tree_traversal",
    )
    tuned = tune(check=True)
    assert "the package agrees with the library in all 1,000 rows: predict, predict_proba, raw" in (
        capsys.readouterr().err
    )
    show_closing(tuned, models.ZOO["xgb_three"](), None)  # not in a terminal
    show_closing(tuned, StandardScaler(), True)  # an error does not spoil the result
    assert capsys.readouterr().err == ""


def test_threads_are_restored() -> None:
    forest = RandomForestClassifier(3, max_depth=2, n_jobs=-1).fit(models.data()[0], models.targets("two"))
    model = hbtvm.compile(forest, batch_sizes=100, threads=2, strategies="tree_traversal")
    assert model.compare(forest, models.data()[0]).agrees
    assert forest.n_jobs == -1
    boosted = xgb.XGBClassifier(n_estimators=2, n_jobs=3).fit(models.data()[0], models.targets("two"))
    before = boosted.get_booster().save_config()
    hbtvm.compile(boosted, batch_sizes=100, threads=1).compare(boosted, models.data()[0])
    assert (boosted.n_jobs, boosted.get_booster().save_config()) == (3, before)


def test_a_lucky_call_does_not_choose_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = RandomForestClassifier(3, max_depth=2).fit(models.data()[0], models.targets("two"))
    library = Live(forest, ["predict"], 2)
    library.take(models.data()[0])
    times = {1: [0.02] * 5, 2: [0.5, 0.01, 0.01, 0.07, 0.08]}
    monkeypatch.setattr(library, "seconds", lambda output, rows, calls: times[forest.n_jobs].pop(0))
    assert library.prepare("predict", 10) == 0.02
    assert forest.n_jobs == 1
    library.close()


def test_what_is_refused() -> None:
    model = compiled("sk_forest_two")
    with pytest.raises(InputError, match="no rows"):
        model.compare(models.ZOO["sk_forest_two"](), np.empty((0, 4)))
    with pytest.raises(InputError, match="StandardScaler has none of the package's outputs"):
        model.compare(StandardScaler().fit(models.data()[0]), models.data()[0])
    with pytest.raises(hbtvm.ModelError, match="can't be read"):
        model.compare("none.json", models.data()[0])


def compared(expected: Any, got: Any, ties: np.ndarray | None = None) -> Any:
    return agreement("predict", expected, got, 1e-5, ties)


def test_differences() -> None:
    ones = np.ones((3, 2))
    assert compared(ones, ones + 1e-6).agrees
    assert compared(np.array([np.nan, 1e9]), np.array([np.nan, 1e9])).largest == 0
    off = compared(np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[1.0, 5.0], [2.0, 6.0]]))
    assert (off.equal, off.largest) == (1, 0.2)
    assert [(one.row, one.column, one.library, one.package) for one in off.examples] == [(1, 1, 5.0, 6.0)]
    assert compared(np.array([1.0, np.nan]), np.array([1.0, 2.0])).largest == np.inf
    assert not compared(np.array([1.0, 2.0]), np.array([1.0, np.inf])).agrees
    # Of numbers that may be what rounding left, the difference is relative to the largest.
    assert compared(np.array([[1e3, 1e-14]]), np.array([[1e3, 0.0]])).agrees
    labels = compared(np.array(["a", "b"]), np.array(["a", "c"], object))
    assert (labels.equal, labels.largest) == (1, None)
    shapes = compared(np.zeros(3), np.zeros((3, 3)))
    assert not shapes.agrees and shapes.problem == "the library's shape is (3, 1), the package's (3, 3)"
    matrix = sparse.random(50, 30, 0.1, "csr", random_state=0)
    assert compared(matrix, matrix.copy()).agrees
    other = matrix.copy()
    other.data[0] += 1
    assert compared(matrix, other).equal == 49
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]})
    assert compared(frame, frame.copy()).agrees
    assert compared([ones, ones], [ones, ones + 1]).equal == 0


def test_labels_whose_scores_tie_agree() -> None:
    scores = np.array([[0.5, 0.5], [0.4, 0.6], [0.5 + 1e-7, 0.5 - 1e-7]])
    ties = ties_of(scores, 1e-5)
    assert ties is not None and ties.tolist() == [True, False, True]
    assert ties_of(np.array([1e-9, -2.0]), 1e-5).tolist() == [True, False]
    assert ties_of([scores, scores], 1e-5) is None
    labels = compared(np.array([0, 1, 0]), np.array([1, 1, 1]), ties)
    assert labels.agrees and labels.ties == 2
    assert not compared(np.array([0, 1, 0]), np.array([1, 0, 1]), ties).agrees


def test_speed_ups_in_words() -> None:
    assert [speedup(times) for times in (0.614, 8.34, 41.2, 1090.4)] == ["0.61×", "8.3×", "41×", "1,090×"]


def test_a_model_with_default_schedules_is_compared_beside() -> None:
    model, theirs = compiled("xgb_three"), models.ZOO["xgb_three"]()
    X = random_rows(from_object(theirs), 120)
    comparison = compare.compare(model, theirs, X, default=model)
    assert names(comparison) == ["predict", "predict_proba", "raw", "predict by default"]
    assert comparison.agrees
    assert all(timing.default is not None and timing.default > 0 for timing in comparison.timings)
    assert comparison.tables()[0][0][2:] == ("default", "tuned", "default's speed-up", "tuned's")
    assert all(len(row) == 6 for row in comparison.tables()[0][1])

    def wrong(X: Any, output: str | None = None) -> Any:
        return 2 - model.predict(X)

    other = hbtvm.Model.from_package(model.package, 1)
    other.predict = wrong  # type: ignore[method-assign]
    comparison = compare.compare(model, theirs, X, default=other)
    assert not comparison.agrees and "DIFFERS from the library in predict by default" in comparison.verdict
