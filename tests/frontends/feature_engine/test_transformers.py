"""Transformers of feature-engine against the library, by themselves and before models."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

import hbtvm
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import Global, Record, from_live
from hbtvm.frontends.transformers import apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table
from tests.frontends.transformers.oracle import PLACE, raw_of, record_of
from tests.lying_records import is_read, put_junk

pytest.importorskip("feature_engine")

from feature_engine import (
    creation,
    discretisation,
    encoding,
    imputation,
    outliers,
    scaling,
    selection,
    transformation,
)
from feature_engine.pipeline import Pipeline as EnginePipeline
from feature_engine.wrappers import SklearnTransformerWrapper

ROWS = 120
Y = pd.Series((np.random.default_rng(5).random(ROWS) > 0.5).astype(int))


def frame_of(seed: int, more: bool = False, missing: float = 0.0, dtype: str = "float64") -> pd.DataFrame:
    """Numbers and categories; `more`: with categories and numbers that training lacks."""
    rng = np.random.default_rng(seed)
    job = rng.choice(["tech", "law", "art", *(["new"] if more else [])], ROWS).astype(object)
    city = rng.choice(["a", "b"], ROWS).astype(object)
    frame = pd.DataFrame(
        {
            "job": pd.Series(job, dtype="str"),
            "age": rng.normal(40, 15 if more else 9, ROWS).clip(1).astype(dtype),
            "city": pd.Series(city, dtype=object),
            "share": rng.uniform(0.01, 0.99, ROWS).astype(dtype),
            "count": rng.integers(1, 9, ROWS),
            "same": 3.0,
        }
    )
    for column in ("job", "age", "share") if missing else ():
        frame.loc[rng.random(ROWS) < missing, column] = np.nan
    return frame


def check(transformer: Any, frame: pd.DataFrame, rtol: float = 0.0) -> None:
    """Compare a transformer's table with the library; both refuse the rows, or neither does."""
    names = tuple(frame.columns)
    raw = Table(tuple(Column(Raw(i)) for i in range(len(names))), names=names)
    table = apply(record_of(transformer), raw, replace(PLACE, names=names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = transformer.transform(frame)
        except ValueError:
            with pytest.raises(InputError):
                evaluate(table, raw_of(frame))
            return
    assert table.names == tuple(map(str, expected.columns))
    evaluated = evaluate(table, raw_of(frame))
    for i, name in enumerate(expected.columns):
        values = expected[name].to_numpy()
        if values.dtype.kind in "fiub":
            np.testing.assert_allclose(
                evaluated[:, i].astype(float), values.astype(float), rtol, err_msg=name
            )
        else:
            assert pd.Series(evaluated[:, i]).equals(pd.Series(expected[name].to_numpy(object))), name


def fitted(transformer: Any, missing: float = 0.0, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformer.fit(frame_of(0, missing=missing, **settings), Y)


IMPUTERS = [
    imputation.MeanMedianImputer(),
    imputation.MeanMedianImputer("mean", variables=["age"]),
    imputation.ArbitraryNumberImputer(-1),
    imputation.ArbitraryNumberImputer(imputer_dict={"age": 0.1}),
    imputation.EndTailImputer("iqr", tail="left"),
    imputation.CategoricalImputer(),
    imputation.CategoricalImputer("frequent", variables=["job"]),
    imputation.CategoricalImputer(variables=["age", "job"], fill_value=-7, ignore_format=True),
    imputation.AddMissingIndicator(),
    imputation.AddMissingIndicator(missing_only=False, variables=["job", "city"]),
    selection.DropFeatures(["age", "city"]),
    selection.DropConstantFeatures(missing_values="ignore"),
]


@pytest.mark.parametrize("transformer", IMPUTERS, ids=lambda x: type(x).__name__)
def test_steps_that_take_missing_values(transformer: Any) -> None:
    fitted(transformer, missing=0.2)
    check(transformer, frame_of(1, more=True, missing=0.3))
    check(transformer, frame_of(2))


ENCODERS: list[Callable[..., Any]] = [
    encoding.OrdinalEncoder,
    encoding.MeanEncoder,
    encoding.CountFrequencyEncoder,
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda x: x.__name__)
def test_encoders_with_all_settings(encoder: Any) -> None:
    for unseen in ("ignore", "raise", "encode"):
        for missing in ("raise", "ignore"):
            transformer = encoder(unseen=unseen, missing_values=missing)
            fitted(transformer, missing=0.2 if missing == "ignore" else 0.0)
            for more in (False, True):
                check(transformer, frame_of(1, more))
                check(transformer, frame_of(1, more, missing=0.2))


@pytest.mark.parametrize(
    "encoder",
    [
        encoding.OneHotEncoder(),
        encoding.OneHotEncoder(drop_last=True, variables=["job"]),
        encoding.OneHotEncoder(top_categories=2),
        encoding.OneHotEncoder(drop_last_binary=True),
        encoding.OneHotEncoder(variables=["count", "job"], ignore_format=True),
        encoding.OrdinalEncoder(encoding_method="arbitrary", variables=["count"], ignore_format=True),
        encoding.MeanEncoder(smoothing="auto"),
        encoding.CountFrequencyEncoder("frequency"),
        encoding.WoEEncoder(fill_value=0.01),
        encoding.DecisionTreeEncoder(regression=False, random_state=0, unseen="raise"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_other_encoders(encoder: Any) -> None:
    fitted(encoder)
    for missing in (0.0, 0.2):
        check(encoder, frame_of(1, more=True, missing=missing))
    check(encoder, frame_of(2))


NUMBERS = [
    discretisation.EqualFrequencyDiscretiser(q=5, variables=["age", "share"]),
    discretisation.EqualWidthDiscretiser(bins=4, return_object=True),
    discretisation.GeometricWidthDiscretiser(bins=4, variables=["age"]),
    discretisation.ArbitraryDiscretiser({"age": [20, 30, 45.5, 50], "count": [0, 3, np.inf]}),
    discretisation.ArbitraryDiscretiser({"age": [0, 30, 60]}, errors="raise"),
    discretisation.DecisionTreeDiscretiser(bin_output="bin_number", regression=False, random_state=0),
    outliers.Winsorizer(tail="both", fold=1, variables=["age", "share"]),
    outliers.Winsorizer("iqr", tail="left", add_indicators=True, variables=["age", "count"]),
    outliers.Winsorizer("quantiles", tail="both", fold=0.1, add_indicators=True, variables=["age"]),
    outliers.ArbitraryOutlierCapper({"age": 45}, {"age": 33, "share": 0.2}),
    transformation.LogTransformer(),
    transformation.LogTransformer(variables=["share"], base="10"),
    transformation.LogCpTransformer(C=-20, variables=["age"]),
    transformation.LogCpTransformer(C={"age": 2, "share": 0.1}),
    transformation.PowerTransformer(variables=["age"]),
    transformation.PowerTransformer(variables=["age"], exp=2),
    transformation.ReciprocalTransformer(variables=["share", "count"]),
    transformation.YeoJohnsonTransformer(variables=["age", "share"]),
    transformation.BoxCoxTransformer(variables=["age", "share"]),
    transformation.ArcSinhTransformer(variables=["age"], loc=1.5, scale=3.0),
    transformation.ArcsinTransformer(variables=["share"]),
    SklearnTransformerWrapper(RobustScaler(), variables=["age", "count"]),
    SklearnTransformerWrapper(KBinsDiscretizer(4, encode="ordinal"), variables=["age", "share"]),
    scaling.MeanNormalizationScaler(variables=["age", "share"]),
    creation.CyclicalFeatures(variables=["count"], drop_original=True),
    selection.DropConstantFeatures(),
    selection.DropCorrelatedFeatures(),
]


@pytest.mark.parametrize("transformer", NUMBERS, ids=lambda x: type(x).__name__)
def test_steps_that_refuse_missing_values(transformer: Any) -> None:
    fitted(transformer)
    frame = frame_of(1, more=True)
    check(transformer, frame)
    name = type(transformer).__name__
    # hbtvm refuses roots of negative numbers, and takes NaN where other values become NaN.
    left_out = {"PowerTransformer": -3.0, "ArbitraryDiscretiser": np.nan}.get(name)
    for value in {0.0, -3.0, np.inf, np.nan} - {left_out}:
        for column in ("age", "share"):
            check(transformer, frame.assign(**{column: np.where(frame.index == 7, value, frame[column])}))


@pytest.mark.parametrize(
    "wrapper",
    [
        SklearnTransformerWrapper(SimpleImputer(strategy="median"), variables=["age", "count"]),
        SklearnTransformerWrapper(OneHotEncoder(sparse_output=False), variables=["city"]),
        SklearnTransformerWrapper(OrdinalEncoder(), variables=["city", "count"]),
        SklearnTransformerWrapper(SelectKBest(k=1), variables=["age", "count", "same"]),
    ],
    ids=lambda x: type(x.transformer).__name__,
)
def test_wrapped_transformers(wrapper: Any) -> None:
    fitted(wrapper, missing=0.1 if isinstance(wrapper.transformer, SimpleImputer) else 0.0)
    check(wrapper, frame_of(2))
    if isinstance(wrapper.transformer, SimpleImputer):
        check(wrapper, frame_of(1, more=True, missing=0.3))


@pytest.mark.parametrize("missing", ["raise", "ignore"])
def test_arithmetic_of_columns(missing: str) -> None:
    numbers = ["age", "count", "share"]
    for transformer in (
        creation.MathFeatures(numbers, ["sum", "mean", "min", "max", "prod"], missing_values=missing),
        creation.MathFeatures(numbers[1:], "sum", ["both"], missing_values=missing, drop_original=True),
        creation.RelativeFeatures(
            numbers[1:], ["age", "same"], ["add", "sub", "mul", "div"], missing_values=missing
        ),
        creation.RelativeFeatures(["age"], ["share"], ["truediv"], 7.5, missing, drop_original=True),
    ):
        fitted(transformer)
        check(transformer, frame_of(1, more=True), rtol=1e-15)
        rows = frame_of(1, more=True)
        check(transformer, rows.assign(share=np.where(rows.index == 3, 0.0, rows["share"])), rtol=1e-15)
        if transformer.__class__.__name__ == "MathFeatures" or missing == "raise":
            rows = rows.assign(share=np.where(rows.index == 3, np.nan, rows["share"]))
            check(transformer, rows.assign(age=np.where(rows.index < 6, np.nan, rows["age"])), rtol=1e-15)


def test_values_at_the_edges_of_bins() -> None:
    transformer = fitted(discretisation.EqualFrequencyDiscretiser(q=7, variables=["age"]))
    capper = fitted(outliers.Winsorizer("quantiles", tail="both", fold=0.2, variables=["age"]))
    edges = np.array([*transformer.binner_dict_["age"][1:-1], *capper.right_tail_caps_.values()])
    near = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    frame = frame_of(1)
    frame.loc[: len(near) - 1, "age"] = near
    for fitted_one in (transformer, capper):
        check(fitted_one, frame)
        check(fitted_one, frame.astype({"age": "float32"}))


def models() -> dict[str, Pipeline]:
    before = [
        imputation.AddMissingIndicator(variables=["age"]),
        imputation.MeanMedianImputer(variables=["age", "share"]),
        imputation.CategoricalImputer(variables=["job"]),
        outliers.Winsorizer(variables=["age"], tail="both"),
    ]
    encoders = [
        encoding.OneHotEncoder(variables=["job"]),
        encoding.MeanEncoder(variables=["city"], unseen="encode"),
        creation.MathFeatures(["age", "count"], ["sum", "max"]),
        SklearnTransformerWrapper(StandardScaler(), variables=["age"]),
        selection.DropConstantFeatures(),
    ]
    columns = ColumnTransformer(
        [
            (
                "mean",
                encoding.CountFrequencyEncoder(unseen="encode", missing_values="ignore"),
                ["job", "city"],
            ),
            ("log", make_pipeline(transformation.LogTransformer(), StandardScaler()), ["count"]),
        ]
    )
    return {
        "linear": make_pipeline(*before, *encoders, StandardScaler(), LogisticRegression()),
        "trees": make_pipeline(
            *before,
            encoding.OrdinalEncoder(variables=["job", "city"], unseen="encode"),
            discretisation.EqualWidthDiscretiser(variables=["share"], bins=6),
            DecisionTreeClassifier(max_depth=6, random_state=0),
        ),
        "columns": make_pipeline(columns, DecisionTreeClassifier(max_depth=6, random_state=0)),
        "engine": EnginePipeline(
            [("impute", before[1]), ("code", encoding.WoEEncoder(variables=["city"], fill_value=0.1)),
             ("drop", selection.DropFeatures(["job"])), ("model", LogisticRegression())]
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["linear", "trees", "columns", "engine"])
def test_models_behind_steps(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = models()[name].fit(frame_of(0, missing=0.2), Y)
        rows = frame_of(1, more=True, missing=0.2)
        compiled = hbtvm.compile(pipeline, batch_sizes=1)
        np.testing.assert_allclose(compiled.predict_proba(rows), pipeline.predict_proba(rows), rtol=1e-6)
        np.testing.assert_allclose(
            compiled.predict_proba(rows[:1]), pipeline.predict_proba(rows[:1]), rtol=1e-6
        )


def test_a_transformer_by_itself_returns_a_frame() -> None:
    transformer = fitted(imputation.AddMissingIndicator(), missing=0.2)
    rows = frame_of(1, missing=0.3)[::-1]
    result = hbtvm.compile(transformer).transform(rows)
    pd.testing.assert_frame_equal(result, transformer.transform(rows), check_dtype=False)


@pytest.mark.parametrize(
    "transformer, words",
    [
        (transformation.PowerTransformer(variables=["age"], exp=3), "raises to the power 3; supported are"),
        (discretisation.EqualWidthDiscretiser(return_boundaries=True), "returns intervals as texts"),
        (discretisation.DecisionTreeDiscretiser(regression=False), "bin_output="),
        (creation.MathFeatures(["age", "share"], "std"), "computes 'std', which is not supported; supported"),
        (creation.RelativeFeatures(["age"], ["share"], ["pow"]), "computes 'pow', which is not supported"),
        (imputation.RandomSampleImputer(), "draws random values; use an imputer that has one value"),
        (encoding.RareLabelEncoder(n_categories=1), "turns categories into texts, which only an encoder"),
        (imputation.DropMissingData(), "it drops rows; apply it before, and leave"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_refusals(transformer: Any, words: str) -> None:
    fitted(transformer)
    with pytest.raises(UnsupportedModel, match=words):
        registry.read(from_live(transformer))
    with pytest.raises(UnsupportedModel, match=words):
        registry.read(from_live(make_pipeline(transformer)))


def test_sklearn_pandas_names_what_to_use_instead() -> None:
    record = Record(Global("sklearn_pandas.dataframe_mapper", "DataFrameMapper"))
    words = "replace its DataFrameMapper, which fails to import with scikit-learn 1.7, by scikit-learn's Col"
    with pytest.raises(UnsupportedModel, match=words):
        registry.read(record)


def test_damaged_pickles() -> None:
    transformers = [*IMPUTERS[:9:4], encoding.OneHotEncoder(), encoding.MeanEncoder(), *NUMBERS[1:11:3]]
    for transformer in transformers:
        fitted(transformer)
    choose, read = random.Random(0), 0
    for _ in range(400):
        record = record_of(choose.choice(transformers))
        put_junk(record, choose, others=False)
        read += is_read(record)
    assert 20 < read < 380
