"""Pipelines, transformers side by side, and wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import DictionaryLearning
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.transformers import apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table
from tests.frontends.transformers.oracle import PLACE, check, raw_of, record_of, table_of


def frame_of(seed: int, n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "income": np.round(rng.lognormal(10, 1, n), 2),
            "job": rng.choice(["tech", "law", "farm", "art"], n).astype(object),
            "plan": rng.choice(["a", "b"], n).astype(object),
            "score": rng.normal(size=n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "income"] = np.nan
    frame.loc[rng.random(n) < 0.1, "plan"] = None if seed % 2 else np.nan
    return frame


NUMBERS = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
WORDS = make_pipeline(
    SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore")
)
DENSE = make_pipeline(
    SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
)

CONTAINERS: dict[str, Any] = {
    "names": ColumnTransformer([("n", NUMBERS, ["age", "income"]), ("w", DENSE, ["plan", "job"])]),
    "positions": ColumnTransformer([("n", NUMBERS, [4, 0]), ("w", DENSE, [-2])]),
    "slices": ColumnTransformer([("n", NUMBERS, slice(0, 2)), ("w", WORDS, slice("job", "plan"))]),
    "masks": ColumnTransformer([("n", NUMBERS, [True, False, False, False, True])]),
    "selectors": make_column_transformer(
        (NUMBERS, make_column_selector(dtype_include="number")),
        (WORDS, make_column_selector(dtype_exclude="number")),
    ),
    "functions": ColumnTransformer([("n", NUMBERS, make_column_selector("age$|^score"))]),
    "rest passes": ColumnTransformer([("w", DENSE, ["job", "plan"])], remainder="passthrough"),
    "rest is scaled": ColumnTransformer([("w", DENSE, ["plan", "job"])], remainder=MinMaxScaler()),
    "passthrough": ColumnTransformer([("p", "passthrough", ["score"]), ("d", "drop", ["age"])]),
    "an empty selection": ColumnTransformer([("e", StandardScaler(), []), ("n", NUMBERS, ["age"])]),
    "weights": ColumnTransformer(
        [("n", NUMBERS, ["age", "score"]), ("w", DENSE, ["job"])], transformer_weights={"n": 0.3, "w": 2}
    ),
    "short names": ColumnTransformer(
        [("n", NUMBERS, ["age"]), ("w", DENSE, ["job"])], verbose_feature_names_out=False
    ),
    "names by format": ColumnTransformer(
        [("n", NUMBERS, ["age"])], verbose_feature_names_out="{feature_name}-{transformer_name}"
    ),
    "dense by density": ColumnTransformer(
        [("n", NUMBERS, ["age"]), ("w", WORDS, ["job"])], sparse_threshold=0
    ),
    "sparse by density": ColumnTransformer(
        [("n", NUMBERS, ["age"]), ("w", WORDS, ["job"])], sparse_threshold=1
    ),
    "nested": ColumnTransformer(
        [
            (
                "a",
                ColumnTransformer([("n", NUMBERS, ["income"])], remainder="passthrough"),
                ["age", "income"],
            ),
            ("u", FeatureUnion([("s", StandardScaler()), ("m", MinMaxScaler())]), ["score"]),
        ]
    ),
    "frames inside": ColumnTransformer([("n", NUMBERS, ["age", "score"]), ("w", DENSE, ["job"])]),
    "scaled again": make_pipeline(
        ColumnTransformer([("n", NUMBERS, ["age", "income"]), ("w", DENSE, ["job"])]),
        StandardScaler(),
        Normalizer(),
    ),
    "steps that pass": Pipeline(
        [("a", "passthrough"), ("b", None), ("c", ColumnTransformer([("n", NUMBERS, ["age"])]))]
    ),
    "frozen": FrozenEstimator(ColumnTransformer([("n", NUMBERS, ["age", "income"])]).fit(frame_of(0))),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(name: str) -> None:
    check(CONTAINERS[name].fit(frame_of(0), None), frame_of(2), same_type=False)


def test_output_as_frames_is_a_matter_of_the_container() -> None:
    plain = CONTAINERS["names"].fit(frame_of(0)).transform(frame_of(1))
    framed = (
        ColumnTransformer(CONTAINERS["names"].transformers).set_output(transform="pandas").fit(frame_of(0))
    )
    found = evaluate(table_of(framed, 5, frame_of(0).columns), raw_of(frame_of(1)))
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "union",
    [
        FeatureUnion([("s", StandardScaler()), ("m", MinMaxScaler())], transformer_weights={"s": 0.7}),
        FeatureUnion([("s", StandardScaler()), ("d", "drop"), ("p", "passthrough")]),
        FeatureUnion([("l", FunctionTransformer(np.square)), ("n", Normalizer())]),
        FeatureUnion([("s", StandardScaler())], verbose_feature_names_out=False),
        FeatureUnion([("i", SimpleImputer(add_indicator=True)), ("m", MinMaxScaler())]),
    ],
)
def test_unions(union: Any, dtype: str) -> None:
    rows = np.random.default_rng(0).normal(size=(90, 4)).astype(dtype)
    check(union.fit(rows), rows)
    check(make_pipeline(union, StandardScaler()).fit(rows), rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_of_mixed_columns(dtype: str) -> None:
    """float32 numbers beside float64 codes are float64 from there on, and no sooner."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=80) * 1e3, rng.integers(0, 4, 80)]).astype(dtype)
    for codes in (np.float64, np.float32):
        encoder = OneHotEncoder(dtype=codes, sparse_output=False)
        both = ColumnTransformer([("n", StandardScaler(), [0]), ("w", encoder, [1])])
        check(make_pipeline(both, MinMaxScaler((0, 0.7)), StandardScaler()).fit(rows), rows)
    ordinal = ColumnTransformer([("n", StandardScaler(), [0]), ("w", OrdinalEncoder(), [1])])
    check(make_pipeline(ordinal, Normalizer()).fit(rows), rows)


def test_a_search_is_its_best_estimator() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    search = GridSearchCV(
        Pipeline([("s", StandardScaler())]), {"s__with_mean": [True, False]}, scoring=lambda *_: 1.0
    ).fit(rows)
    search.scoring = None
    search.scorer_ = None
    check(search, rows)


def test_what_is_not_supported_is_named_with_its_step() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    chain = Pipeline([("scale", StandardScaler()), ("reduce", DictionaryLearning(2, max_iter=2))]).fit(rows)
    said = r"step 'reduce' is a DictionaryLearning \(sklearn\), which is not supported: it iterates"
    with pytest.raises(UnsupportedModel, match=said):
        table_of(chain, 3)
    with pytest.raises(UnsupportedModel, match="step 'prep__num__reduce' is a DictionaryLearning"):
        outer = Pipeline([("prep", ColumnTransformer([("num", chain, [0, 1, 2])]))]).fit(rows)
        table_of(outer, 3)


def test_a_pipeline_of_itself_is_damage() -> None:
    record = record_of(Pipeline([("s", StandardScaler())]).fit(np.eye(3)))
    record.attributes["steps"] = [("again", record)]
    with pytest.raises(ModelError, match="steps within steps"):
        apply(record, Table((Column(Raw(0)),) * 3), PLACE)
