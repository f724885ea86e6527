"""Encoders of categories: every kind of value, missing, unknown, infrequent and dropped ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    LabelBinarizer,
    LabelEncoder,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.steps import Encode
from tests.frontends.transformers.oracle import check, raw_of, table_of


def column_of(kind: str, seed: int, n: int, more: bool) -> Any:
    """Values of a kind; with `more`, some that training does not have."""
    rng = np.random.default_rng(seed)
    weights = np.array([30, 20, 10, 3, 2, 1, 1.0])
    at = rng.choice(7 if more else 6, n, p=(weights[: 7 if more else 6] / weights[: 7 if more else 6].sum()))
    pools: dict[str, list[Any]] = {
        "ints": [3, 1, 2, 7, -4, 9, 11],
        "floats": [0.5, 1.5, 0.1, 7.25, np.nan, -2.0, 99.0],
        "strings": ["b", "a", "zz", "é", "", "A", "new"],
        "strings and nan": ["b", "a", "zz", np.nan, "q", "A", "new"],
        "strings and none": ["b", "a", "zz", None, "q", "A", "new"],
        "strings, none and nan": ["b", "a", None, np.nan, "q", "A", "new"],
        "bools": [True, False, True, False, True, True, False],
    }
    out = np.empty(n, object)
    out[:] = [pools[kind][i] for i in at]
    return out if "strings" in kind else out.astype({"ints": int, "floats": float, "bools": bool}[kind])


KINDS = ("ints", "floats", "strings", "strings and nan", "strings and none", "strings, none and nan", "bools")


def frame_of(seed: int, more: bool = False, kinds: tuple[str, ...] = KINDS) -> pd.DataFrame:
    columns = {}
    for i, kind in enumerate(kinds):
        values = column_of(kind, 10 * seed + i, 300, more)
        columns[kind] = pd.Series(values, dtype=object if "strings" in kind else values.dtype)
    return pd.DataFrame(columns)


@pytest.mark.parametrize("drop", [None, "first", "if_binary"])
@pytest.mark.parametrize("handling", ["error", "ignore", "infrequent_if_exist", "warn"])
@pytest.mark.parametrize("rare", [{}, {"min_frequency": 15}, {"max_categories": 3}, {"min_frequency": 0.3}])
@pytest.mark.parametrize("sparse", [True, False])
def test_one_hot(drop: Any, handling: str, rare: dict[str, Any], sparse: bool) -> None:
    encoder = OneHotEncoder(drop=drop, handle_unknown=handling, sparse_output=sparse, **rare)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder.fit(frame_of(0))
        check(encoder, frame_of(1, more=handling != "error"))


def test_one_hot_drops_one_category_of_each_column() -> None:
    frame = frame_of(0)
    for rare in ({}, {"min_frequency": 10}):
        drop = [3, 0.5, "b", "b", "b", "b", True]
        check(OneHotEncoder(drop=drop, sparse_output=False, **rare).fit(frame), frame_of(1))


@pytest.mark.parametrize("rare", [{}, {"min_frequency": 15}, {"max_categories": 3}])
@pytest.mark.parametrize("missing", [np.nan, -5, 40])
@pytest.mark.parametrize("unknown", [None, np.nan, -1])
def test_ordinal(rare: dict[str, Any], missing: float, unknown: float | None) -> None:
    handling = {} if unknown is None else {"handle_unknown": "use_encoded_value", "unknown_value": unknown}
    encoder = OrdinalEncoder(encoded_missing_value=missing, **handling, **rare).fit(frame_of(0))
    check(encoder, frame_of(1, more=unknown is not None))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, "float64"])
def test_types_of_codes(dtype: Any) -> None:
    frame = frame_of(0, kinds=("ints", "strings"))
    encoder = OrdinalEncoder(dtype=dtype)
    check(encoder.fit(frame), frame, same_type=False)
    check(make_pipeline(encoder, StandardScaler()).fit(frame), frame)
    onehot = OneHotEncoder(dtype=dtype, sparse_output=False)
    check(make_pipeline(onehot, StandardScaler()).fit(frame), frame)


def test_arrays_of_numbers_in_float32() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (100, 3)).astype("float32")
    check(OneHotEncoder().fit(rows), rows, same_type=False)
    scaled = make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()).fit(rows)
    check(scaled, rows)
    # A float64 category that no float32 is.
    other = OneHotEncoder(handle_unknown="ignore").fit(np.array([[0.1], [0.5]]))
    check(other, np.array([[0.1], [0.5]], "float32"), same_type=False)


def test_unknown_values_are_refused_by_step_and_column() -> None:
    table = table_of(OneHotEncoder().fit(frame_of(0)), len(KINDS), KINDS)
    frame = frame_of(0)
    frame.loc[5, "strings"] = "other"
    with pytest.raises(
        InputError, match=r"the OneHotEncoder, column 'strings': 'other' was not in the training data"
    ):
        evaluate(table, raw_of(frame))
    frame = frame_of(0)
    frame.loc[5, "strings"] = pd.NA
    with pytest.raises(InputError, match="was not in the training data"):
        evaluate(table, raw_of(frame))


def test_encoders_behind_imputers_and_each_other() -> None:
    frame = frame_of(0, kinds=("strings and nan", "strings"))
    chain = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(drop="first"))
    check(chain.fit(frame), frame_of(1, kinds=("strings and nan", "strings")))
    chain = make_pipeline(OrdinalEncoder(), OneHotEncoder(), StandardScaler(with_mean=False))
    check(chain.fit(frame), frame_of(1, kinds=("strings and nan", "strings")))
    chain = make_pipeline(OrdinalEncoder(), SimpleImputer(), OneHotEncoder())
    check(chain.fit(frame), frame_of(1, kinds=("strings and nan", "strings")))


def test_columns_of_a_category_share_one_encoder() -> None:
    table = table_of(OneHotEncoder().fit(frame_of(0)), len(KINDS), KINDS)
    encoders = {id(step) for column in table.columns for step in column.steps if isinstance(step, Encode)}
    assert len(encoders) == len(KINDS)


@pytest.mark.parametrize("labels", [["a", "b"], ["b", "a", "c"], ["a"], [3, 1], [True, False]])
def test_labels(labels: list[Any]) -> None:
    values = np.array(labels * 3)
    raw = raw_of(values[:, None])
    encoder = LabelEncoder().fit(values)
    np.testing.assert_array_equal(evaluate(table_of(encoder, 1), raw)[:, 0], encoder.transform(values))
    for binarizer in (LabelBinarizer().fit(values), LabelBinarizer(neg_label=-2, pos_label=3).fit(values)):
        np.testing.assert_array_equal(evaluate(table_of(binarizer, 1), raw), binarizer.transform(values))


def test_dates_are_refused() -> None:
    frame = pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2021-01-01"])})
    with pytest.raises(UnsupportedModel, match="not strings, numbers or bools"):
        table_of(OrdinalEncoder().fit(frame), 1)


@pytest.mark.parametrize("kind", ["binary", "continuous", "multiclass"])
def test_target_encoder(kind: str) -> None:
    frame = frame_of(1)
    y = np.random.default_rng(0).integers(0, 3 if kind == "multiclass" else 2, len(frame))
    target: Any = y + 0.5 * np.arange(len(y)) if kind == "continuous" else np.array(["c", "a", "b"])[y]
    encoder = TargetEncoder(target_type=kind).fit(frame, target)
    table = check(encoder, frame_of(2, more=True))
    assert len(table) == len(KINDS) * (3 if kind == "multiclass" else 1)


def test_damaged_target_encoder() -> None:
    frame = frame_of(1, kinds=("ints", "strings"))
    encoder = TargetEncoder().fit(frame, np.arange(len(frame)) * 1.0)
    encoder.encodings_ = encoder.encodings_[:1]
    with pytest.raises(ModelError, match="encodings"):
        table_of(encoder, 2)
