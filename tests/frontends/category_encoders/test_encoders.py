"""Encoders of category_encoders against the library: each class × its settings, and models behind them."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import hbtvm
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import from_live
from hbtvm.frontends.transformers import apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table
from tests.frontends.transformers.oracle import PLACE, raw_of, record_of
from tests.lying_records import is_read, put_junk

ce = pytest.importorskip("category_encoders")

ROWS = 60
COLUMNS = ("text", "objects", "category", "none", "seldom", "string", "whole")
Y = (np.random.default_rng(5).random(ROWS) > 0.5).astype(int)

CLASSES = (
    *("OrdinalEncoder", "OneHotEncoder", "BinaryEncoder", "BaseNEncoder", "GrayEncoder", "SumEncoder"),
    *("HelmertEncoder", "BackwardDifferenceEncoder", "PolynomialEncoder", "TargetEncoder"),
    *("MEstimateEncoder", "JamesSteinEncoder", "WOEEncoder", "QuantileEncoder", "LeaveOneOutEncoder"),
    *("CatBoostEncoder", "CountEncoder", "SummaryEncoder", "RankHotEncoder"),
)
SETTINGS = (
    *(("value", "value"), ("return_nan", "return_nan"), ("indicator", "indicator"), (7, -9)),
    *(
        ("error", "value"),
        ("value", "error"),
        ("error", "error"),
        ("return_nan", "error"),
        ("indicator", "value"),
    ),
    *(("return_nan", "value"), ("value", "return_nan"), ("value", "indicator")),
)
"""Choices of ``handle_unknown`` and ``handle_missing``."""


def frame_of(seed: int, more: bool = False, missing: bool = True) -> pd.DataFrame:
    """Categories of all types; `more`: with some that training lacks."""
    rng = np.random.default_rng(seed)

    def pick(known: Sequence[Any], new: Sequence[Any], absent: Sequence[Any] = ()) -> np.ndarray:
        pool = [*known, *(new if more else ()), *(absent if missing else ())]
        out = np.empty(ROWS, object)
        out[:] = [pool[i] for i in rng.integers(0, len(pool), ROWS)]
        return out

    return pd.DataFrame(
        {
            "text": pd.Series(pick(("a", "b", "zz", "é"), ("new",), (np.nan,)), dtype="str"),
            "number": rng.normal(size=ROWS),
            "objects": pd.Series(pick(("u", 2, 2.5, True, "w", "x"), ("q",)), dtype=object),
            "category": pd.Categorical(pick(("p", "q"), ("r",), (np.nan,))),
            "none": pd.Series(pick(("p", "q"), ("r",), (None,)), dtype=object),
            "seldom": pd.Series(pick(("p", "q", "s"), ("r", np.nan)), dtype=object),
            "string": pd.Series(pick(("p", "q", "s"), ("r",), (None,)), dtype="string"),
            "whole": pd.Series(pick((3, 4, 5), (9,))).astype(int),
        }
    )


def fitted(name: str, frame: pd.DataFrame | np.ndarray, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(ce, name)(**settings).fit(frame, Y)


def check(encoder: Any, frame: pd.DataFrame) -> None:
    """Compare an encoder's table with the library; both refuse the rows, or neither does."""
    names = tuple(frame.columns)
    raw = Table(tuple(Column(Raw(i)) for i in range(len(names))), names=names)
    table = apply(record_of(encoder), raw, replace(PLACE, names=names))
    # As the runtime reads pandas' strings
    seen = {"string": frame["string"].to_numpy(object, na_value=np.nan)} if "string" in frame else {}
    values = raw_of(frame.assign(**seen))
    try:
        expected = encoder.transform(frame)
    except ValueError:
        with pytest.raises(InputError):
            evaluate(table, values)
        return
    assert table.names == tuple(map(str, expected.columns))
    np.testing.assert_allclose(evaluate(table, values), expected.to_numpy(float), rtol=1e-15)


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_with_all_settings(name: str) -> None:
    left_out = ["objects"] if name in ("GrayEncoder", "RankHotEncoder") else []  # it sorts categories
    used, cols = 0, [column for column in COLUMNS if column not in left_out]
    for unknown, missing in SETTINGS:
        fit_on = frame_of(0, missing=missing != "error").drop(columns=left_out)
        try:
            encoder = fitted(name, fit_on, cols=cols, handle_unknown=unknown, handle_missing=missing)
        except (KeyError, TypeError, ValueError):  # the class has no such setting
            continue
        used += 1
        rows = frame_of(1, more=True).drop(columns=left_out)
        if "error" not in (unknown, missing):
            check(encoder, rows)
            continue
        check(encoder, frame_of(1, missing=False).drop(columns=left_out))
        for column in ("text", "none", "whole"):
            check(encoder, fit_on.assign(**{column: rows[column]}))
    assert used >= 5


@pytest.mark.parametrize(
    "name, settings",
    [
        ("OneHotEncoder", {"use_cat_names": True, "drop_invariant": True}),
        ("BaseNEncoder", {"base": 3, "drop_invariant": True}),
        ("BaseNEncoder", {"base": 1}),
        ("OrdinalEncoder", {"index_start": 0, "min_group_size": 22, "min_group_name": "few"}),
        ("TargetEncoder", {"min_group_size": 0.3, "combine_min_nan_groups": "force", "smoothing": 2}),
        ("TargetEncoder", {"cols": ["text"], "hierarchy": {"text": {"x": ("a", "b"), "y": ("zz", "é")}}}),
        ("CountEncoder", {"normalize": True, "min_group_size": 25, "combine_min_nan_groups": True}),
        ("CountEncoder", {"handle_unknown": {"text": 3, "none": "return_nan"}, "min_group_size": 0.4}),
        ("CatBoostEncoder", {"a": 3.5, "sigma": 0.1, "min_group_size": 24}),
        ("JamesSteinEncoder", {"model": "beta", "randomized": True}),
        ("GLMMEncoder", {"cols": ["seldom"]}),
        ("OrdinalEncoder", {"cols": None}),
        ("SummaryEncoder", {"quantiles": [0.1, 0.5, 0.9], "m": 3.0}),
        ("RankHotEncoder", {"use_cat_names": True, "drop_invariant": True}),
    ],
)
def test_other_settings(name: str, settings: dict[str, Any]) -> None:
    columns = [name for name in COLUMNS if name != "objects"]  # pandas does not sort them
    settings = {"cols": columns, **settings}
    chosen = settings["cols"] or columns
    encoder = fitted(name, frame_of(0)[chosen], **settings)
    check(encoder, frame_of(1, more=True)[chosen])


def test_nested_encoders() -> None:
    frame = frame_of(0)[["text", "number", "whole"]]
    wrapper = pytest.importorskip("category_encoders.wrapper")
    encoder = wrapper.NestedCVWrapper(ce.TargetEncoder(cols=["text", "whole"]), cv=3)
    encoder.fit(frame, pd.Series(Y))
    rows = frame_of(1, more=True)[["text", "number", "whole"]]
    pd.testing.assert_frame_equal(hbtvm.compile(encoder).transform(rows), encoder.transform(rows))


def test_mappings_of_the_user() -> None:
    mapping = [{"col": "text", "mapping": {"a": 5, "b": 2, "zz": 9}}, {"col": "whole", "mapping": {3: 1}}]
    for missing in ("value", "return_nan"):
        encoder = fitted(
            "OrdinalEncoder",
            frame_of(0)[["text", "whole"]],
            cols=["text", "whole"],
            mapping=mapping,
            handle_missing=missing,
        )
        check(encoder, frame_of(1, more=True)[["text", "whole"]])


def models() -> dict[str, Pipeline]:
    """Models behind encoders: numbers for a linear model, sets of categories for trees."""
    columns = ColumnTransformer(
        [
            ("target", ce.TargetEncoder(), ["text", "category"]),
            ("hot", ce.OneHotEncoder(handle_missing="ignore"), ["none", "whole"]),
            ("scaled", make_pipeline(ce.HelmertEncoder(), StandardScaler()), ["objects"]),
        ],
        remainder="drop",
    )
    whole = ce.CatBoostEncoder(cols=list(COLUMNS))
    strict = ce.WOEEncoder(cols=["text"], handle_missing="error")
    return {
        "linear": make_pipeline(columns, LogisticRegression()),
        "trees": make_pipeline(whole, DecisionTreeClassifier(max_depth=5, random_state=0)),
        "strict": make_pipeline(strict, StandardScaler(), LogisticRegression()),
        "strict trees": make_pipeline(
            ce.CountEncoder(cols=["text"], handle_missing="error"), DecisionTreeClassifier()
        ),
    }


@pytest.mark.parametrize("name", ["linear", "trees"])
def test_models_behind_encoders(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = models()[name].fit(frame_of(0), Y)
        compiled = hbtvm.compile(pickle.loads(pickle.dumps(pipeline)), batch_sizes=1)
        rows = frame_of(1, more=True)
        expected = pipeline.predict_proba(rows)
    np.testing.assert_allclose(compiled.predict_proba(rows), expected, rtol=1e-6)
    np.testing.assert_array_equal(compiled.predict(rows), pipeline.predict(rows))
    alone = compiled.predict_proba(rows.iloc[:1])
    np.testing.assert_allclose(alone, expected[:1], rtol=1e-6)


@pytest.mark.parametrize("name", ["strict", "strict trees"])
def test_models_refuse_missing_values_as_the_encoder_does(name: str) -> None:
    frame = frame_of(0, missing=False)[["text", "number"]]
    pipeline = models()[name].fit(frame, Y)
    compiled = hbtvm.compile(pipeline, batch_sizes=1)
    rows = frame_of(1, more=True, missing=False)[["text", "number"]]
    np.testing.assert_allclose(compiled.predict_proba(rows), pipeline.predict_proba(rows), rtol=1e-6)
    bad = frame_of(1)[["text", "number"]]
    for rows in (bad, bad[bad["text"].isna()].iloc[:1]):
        with pytest.raises(InputError, match="text"):
            compiled.predict(rows)


def test_an_encoder_by_itself_returns_a_frame() -> None:
    frame = frame_of(0)[["text", "number", "whole"]]
    encoder = fitted("BinaryEncoder", frame, cols=["text", "whole"])
    rows = frame_of(1, more=True)[["text", "number", "whole"]][::-1]
    result = hbtvm.compile(encoder).transform(rows)
    pd.testing.assert_frame_equal(result, encoder.transform(rows), check_dtype=False)
    arrays = fitted("BinaryEncoder", frame[["text", "whole"]], cols=["text", "whole"], return_df=False)
    result = hbtvm.compile(arrays).transform(rows[["text", "whole"]])
    np.testing.assert_array_equal(result, arrays.transform(rows[["text", "whole"]]).astype(float))


def test_arrays_of_objects() -> None:
    rows = frame_of(0)[["text", "number", "none"]].to_numpy(object)
    encoder = fitted("TargetEncoder", rows, cols=[0, 2])
    compiled = hbtvm.compile(encoder)
    new = frame_of(1, more=True)[["text", "number", "none"]].to_numpy(object)
    np.testing.assert_array_equal(
        np.asarray(compiled.transform(new), float), encoder.transform(new).to_numpy(float)
    )


@pytest.mark.parametrize(
    "name, settings, words",
    [
        ("TargetEncoder", {"composite_cols": [("text", "none")]}, r"joins columns \(composite_cols\)"),
        ("OrdinalEncoder", {"handle_unknown": lambda value, mapping: 3}, "calls a function for unknown"),
        ("HashingEncoder", {"cols": ["number"]}, "hashes the texts of numbers in column 'number'; convert"),
        ("HashingEncoder", {"hash_method": "sha3_256"}, "hashes by 'sha3_256', which is not supported; sup"),
        ("SummaryEncoder", {"drop_invariant": True}, "drops columns"),
    ],
)
def test_refusals(name: str, settings: dict[str, Any], words: str) -> None:
    encoder = fitted(name, frame_of(0), **{"cols": ["text"], **settings})
    with pytest.raises(UnsupportedModel, match=words):
        registry.read(from_live(encoder))


def test_an_encoder_that_is_not_fitted() -> None:
    with pytest.raises(UnsupportedModel, match="TargetEncoder is not fitted"):
        registry.read(from_live(ce.TargetEncoder()))


def test_damaged_pickles() -> None:
    encoders = [
        fitted(name, frame_of(0), cols=["text", "whole"])
        for name in ("OneHotEncoder", "TargetEncoder", "CatBoostEncoder", "CountEncoder")
    ]
    choose, read = random.Random(0), 0
    for _ in range(300):
        record = record_of(choose.choice(encoders))
        put_junk(record, choose, others=False)
        read += is_read(record)
    assert 20 < read < 280
