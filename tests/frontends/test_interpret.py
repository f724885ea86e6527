"""InterpretML's boosting machines against the library: bins, pairs, missing and unknown values."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hbtvm
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.pickles import Record, from_live
from hbtvm.frontends.registry import read

glassbox = pytest.importorskip("interpret.glassbox")
pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
COUNT = 240


def _frame() -> pd.DataFrame:
    numbers = RNG.normal(size=(COUNT, 2))
    numbers[RNG.random(numbers.shape) < 0.1] = np.nan
    frame = pd.DataFrame(numbers, columns=["a", "b"])
    frame["word"] = RNG.choice(["u", "v", "w"], COUNT)
    frame.loc[::17, "word"] = None
    frame["grade"] = pd.Categorical(RNG.choice(["lo", "hi"], COUNT), categories=["lo", "hi"], ordered=True)
    frame["whole"] = RNG.choice([1, 2, 30], COUNT)
    frame["half"] = RNG.choice([0.5, 2.0, np.nan], COUNT)
    return frame


FRAME = _frame()
TARGET = np.nan_to_num(FRAME.a.to_numpy()) + 1.5 * (FRAME.word == "u") + (FRAME.whole == 2)
LABELS = np.array(["x", "y", "z"])[(TARGET > 0.5).to_numpy(int) + (TARGET > 1.5)]
FIT: dict[str, Callable[[], Any]] = {
    "regressor": lambda: glassbox.ExplainableBoostingRegressor(**_options()).fit(FRAME, TARGET),
    "log": lambda: glassbox.ExplainableBoostingRegressor(**_options(), objective="poisson_deviance").fit(
        FRAME, (TARGET > 0).astype(int)
    ),
    "two": lambda: glassbox.ExplainableBoostingClassifier(**_options()).fit(FRAME, LABELS != "x"),
    "three": lambda: glassbox.ExplainableBoostingClassifier(**_options()).fit(FRAME, LABELS),
}


def _options() -> dict[str, Any]:
    pairs = [("a", "b"), ("a", "word"), ("whole", "grade"), ("half", "word")]
    kinds = ["continuous"] * 2 + ["nominal", "ordinal", "nominal", "nominal"]
    rounds = {"max_rounds": 20, "outer_bags": 1, "n_jobs": 1, "random_state": 0, "max_bins": 64}
    return {"interactions": pairs, "feature_types": kinds, **rounds}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: fit() for name, fit in FIT.items()}


def _rows(model: Any) -> pd.DataFrame:
    """Rows at the cuts and their neighbours, with infinities, and missing and unknown categories."""
    rows = pd.concat([FRAME, FRAME], ignore_index=True)
    for column in (0, 1):
        cuts = np.concatenate(model.bins_[column])
        edges = np.concatenate([cuts, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf)])[:COUNT]
        rows.loc[COUNT : COUNT + len(edges) - 1, rows.columns[column]] = edges
    rows.loc[:1, "a"] = [np.inf, -np.inf]
    rows.loc[3:9, "word"] = "new"
    rows.loc[7:12, "whole"] = 99
    rows.loc[11:15, "half"] = 0.25
    return rows


CONTAINERS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "frame": lambda rows: rows,
    "other columns": lambda rows: rows[rows.columns[::-1]].assign(more=1),
    "objects": lambda rows: rows.astype(object).to_numpy(),
    "numbers as words": lambda rows: rows.assign(whole=rows.whole.astype(str)),
    "whole floats": lambda rows: rows.assign(whole=rows.whole.astype(float)),
    "bools": lambda rows: rows.assign(whole=rows.whole > 1),
    "categories": lambda rows: rows.assign(
        word=rows.word.astype("category"), whole=rows.whole.astype("category")
    ),
    "strings": lambda rows: rows.assign(word=rows.word.astype("string")),
    "float32": lambda rows: rows.astype({"a": np.float32, "b": np.float32}),
}


@pytest.mark.parametrize("name", FIT)
def test_answers(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    rows = _rows(model)
    options = {"batch_sizes": 1000, "threads": 1, "strategies": "tree_traversal", "dtype": "float64"}
    compiled = hbtvm.compile(model, **options)
    for container, make in CONTAINERS.items():
        given = make(rows)
        expected = model.predict(given)
        if name in ("regressor", "log"):
            np.testing.assert_allclose(compiled.predict(given), expected, rtol=1e-12, atol=1e-13)
            continue
        np.testing.assert_array_equal(compiled.predict(given), expected, err_msg=container)
        for method in ("predict_proba", "decision_function"):
            result, theirs = getattr(compiled, method)(given), getattr(model, method)(given)
            np.testing.assert_allclose(result, theirs, rtol=1e-12, atol=1e-13)


def test_arrays_and_pickles(tmp_path: Path) -> None:
    rows = RNG.normal(size=(COUNT, 3))
    model = glassbox.ExplainableBoostingClassifier(max_rounds=10, outer_bags=1, n_jobs=1)
    model.fit(rows, (rows[:, 0] > 0).astype(int))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    graph = load_model(tmp_path / "model.pkl")
    anchor: Any = graph.anchor
    from hbtvm.graph.trees import reference

    scores = reference.margins(anchor, rows)
    np.testing.assert_array_equal(graph.output.compute(None, scores), model.predict(rows))
    np.testing.assert_allclose(scores[:, 0], model.decision_function(rows), rtol=1e-12, atol=1e-13)


def test_refusals(models: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match="is not fitted"):
        from_object(glassbox.ExplainableBoostingClassifier())
    large = glassbox.ExplainableBoostingRegressor(
        max_rounds=2, outer_bags=1, n_jobs=1, feature_types=["nominal"], interactions=0
    ).fit(np.repeat([1e17, 2e17, 3.0], 40)[:, None], np.arange(120.0))
    with pytest.raises(UnsupportedModel, match=r"the category 1e\+17; numbers below 1e16"):
        from_object(large)


@pytest.mark.parametrize("name", ["LinearRegression", "RegressionTree"])
def test_wrapped_regressors(name: str) -> None:
    frame = FRAME[["b", "a"]].fillna(0.5)
    model = getattr(glassbox, name)().fit(frame, TARGET)
    compiled = hbtvm.compile(model, batch_sizes=1, dtype="float64")
    rows = frame[["a", "b"]].assign(more=1.0) * 1.5  # columns by name
    np.testing.assert_allclose(compiled.predict(rows), model.predict(rows), rtol=1e-12)
    with pytest.raises(InputError, match="NaN"):
        compiled.predict(FRAME[["a", "b"]])


@pytest.mark.parametrize("name", ["LogisticRegression", "ClassificationTree"])
def test_wrapped_classifiers(name: str) -> None:
    rows = FRAME[["a", "b"]].fillna(0.5).to_numpy()
    model = getattr(glassbox, name)().fit(rows, LABELS)
    compiled = hbtvm.compile(model, batch_sizes=1, dtype="float64")
    assert compiled.predict(rows).tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(compiled.predict_proba(rows), model.predict_proba(rows), rtol=1e-12)


def test_wrapped_models_of_categories_are_refused() -> None:
    rows = FRAME[["a", "whole"]].fillna(0.5)
    model = glassbox.RegressionTree(feature_types=["continuous", "nominal"]).fit(rows, TARGET)
    with pytest.raises(UnsupportedModel, match="has columns of categories"):
        from_object(model)
    with pytest.raises(UnsupportedModel, match="is not fitted"):
        from_object(glassbox.RegressionTree())


def test_damaged_records(models: dict[str, Any]) -> None:
    rng, ends = random.Random(2), {"read": 0, "refused": 0}
    odd: list[Any] = [None, -1, 0, 7, 1.5, float("nan"), "x", [], {}, (), np.zeros(3), np.zeros((2, 2)), True]
    names = [
        "bins_",
        "term_features_",
        "term_scores_",
        "feature_types_in_",
        "intercept_",
        "classes_",
        "link_",
    ]
    for _ in range(300):
        record = from_live(models[rng.choice(("two", "three"))])
        assert isinstance(record, Record)
        name = rng.choice([*names, "n_features_in_", "feature_names_in_", "has_fitted_"])
        value = record.attributes[name]
        if isinstance(value, list) and value and rng.random() < 0.7:
            at = rng.randrange(len(value))
            inner = value[at]
            if isinstance(inner, list) and inner and rng.random() < 0.6:
                inner[rng.randrange(len(inner))] = rng.choice([*odd, {"u": 0}, {"u": 9}, {3: 1}, {"u": 1}])
            else:
                value[at] = rng.choice([*odd, (9,), (0, 0), (-1,), (0, 1, 2), ("a",)])
        else:
            record.attributes[name] = rng.choice(odd)
        try:
            read(record)
            ends["read"] += 1
        except ModelError as error:
            assert str(error).isprintable() and len(str(error)) < 2000
            ends["refused"] += 1
    assert min(ends.values()) > 5
