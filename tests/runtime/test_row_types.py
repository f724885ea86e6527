"""Rows of every type of numbers and container: converted as the library converts them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import hbtvm
from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from tests.answers import same
from tests.typed_rows import predict

# Thresholds lie between the even numbers of training: on odd ones, where each rounding decides.
_RNG = np.random.default_rng(0)
TRAINING = 2 * _RNG.integers(0, 25, (200, 4))
ODD = _RNG.integers(0, 52, (300, 4))
LABELS = (TRAINING @ [3, 1, 2, 5] // 90) % 3
BOTH = np.c_[LABELS, TRAINING[:, 1] // 20]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")

_SCALERS = (StandardScaler, MinMaxScaler, RobustScaler, MaxAbsScaler)


def _classifier(scaler: Any = StandardScaler, depth: int = 6) -> Any:
    return make_pipeline(scaler(), DecisionTreeClassifier(max_depth=depth, random_state=0))


def _regressor(scaler: Any = StandardScaler) -> Any:
    return make_pipeline(scaler(), DecisionTreeRegressor(max_depth=6, random_state=0))


MODELS: dict[str, Any] = {
    **{scaler.__name__: _classifier(scaler) for scaler in _SCALERS},
    "multi-output": MultiOutputClassifier(_classifier()),
    "several regressions": MultiOutputRegressor(_regressor(MinMaxScaler)),
    "one against all": OneVsRestClassifier(_classifier(RobustScaler)),
    "one against one": OneVsOneClassifier(_classifier(MaxAbsScaler)),
    "soft": VotingClassifier([("a", _classifier()), ("b", LogisticRegression())], voting="soft"),
    "hard": VotingClassifier([("a", _classifier()), ("b", _classifier(MinMaxScaler, 3))]),
    "mean": VotingRegressor([("a", _regressor()), ("b", LinearRegression())]),
    "stacked": StackingClassifier([("a", _classifier())], LogisticRegression(), cv=2),
    "stacked, rows pass": StackingRegressor([("a", _regressor())], _regressor(), cv=2, passthrough=True),
    "bagged": BaggingClassifier(_classifier(), 3, random_state=0),
    "calibrated": CalibratedClassifierCV(_classifier(), cv=2),
    "boosted": AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=3, random_state=0),
    "chain": ClassifierChain(_classifier()),
    "chain of regressions": RegressorChain(_regressor()),
    "scaler in front": make_pipeline(StandardScaler(), MultiOutputClassifier(_classifier(MinMaxScaler))),
}
_SEVERAL = ("multi-output", "several regressions", "chain", "chain of regressions", "scaler in front")


@cache
def fitted(name: str) -> tuple[Any, Graph]:
    model = clone(MODELS[name]).fit(TRAINING, BOTH if name in _SEVERAL else LABELS)
    return model, from_object(model)


def _of(dtype: str) -> np.ndarray:
    return ODD % 2 == 0 if dtype == "bool" else ODD.astype(dtype)


_MIXED = (
    ("int8", "uint8", "int16", "bool"),
    ("float32", "int8", "uint8", "bool"),
    ("float32", "int16", "float32", "uint16"),
    ("float32", "int32", "float32", "float32"),
    ("int8", "uint64", "int64", "int32"),
    ("Int8", "UInt8", "Int32", "boolean"),
    ("Float32", "Int8", "float32", "Int16"),
    ("float[pyarrow]", "float32", "int8[pyarrow]", "float32"),
)
"""Types of the columns of frames, most of which have another type in common."""


def _frame(kinds: tuple[str, ...]) -> pd.DataFrame:
    columns = [ODD[:, i] % 2 == 0 if "bool" in kind else ODD[:, i] for i, kind in enumerate(kinds)]
    return pd.DataFrame(dict(enumerate(columns))).astype(dict(enumerate(kinds)))


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_every_type(name: str) -> None:
    model, graph = fitted(name)
    for dtype in (*INTEGERS, "float32", "float64"):
        rows = _of(dtype)
        expected = model.predict(rows)
        for one in (rows, np.asfortranarray(rows), pd.DataFrame(rows)):
            same(predict(graph, one), expected, 1e-6, 1e-9)
        same(predict(graph, rows[:1]), expected[:1], 1e-6, 1e-9)
    for kinds in _MIXED:
        same(predict(graph, _frame(kinds)), model.predict(_frame(kinds)), 1e-6, 1e-9)
    same(predict(graph, ODD.tolist()), model.predict(ODD.tolist()), 1e-6, 1e-9)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kinds", [("int8",) * 4, ("int64",) * 4, ("float32",) * 4, *_MIXED[:4]])
def test_rows_of_every_container(kinds: tuple[str, ...], several: bool) -> None:
    names = list("abcd")
    model = MultiOutputClassifier(_classifier()) if several else _classifier(MinMaxScaler)
    model.fit(pd.DataFrame(TRAINING, columns=names), BOTH if several else LABELS)
    graph = from_object(model)
    frame = _frame(kinds).set_axis(names, axis=1)
    table = pa.Table.from_pandas(frame)
    expected = model.predict(frame)
    for rows in (frame, pl.from_pandas(frame), table, table.to_batches()[0]):
        same(predict(graph, rows), expected, 0, 0)
        same(predict(graph, rows[:1]), expected[:1], 0, 0)
    # Numbers of Python have one type each.
    plain = frame.to_dict("records")
    same(predict(graph, plain), model.predict(pd.DataFrame(plain)), 0, 0)
    same(predict(graph, plain[0]), model.predict(pd.DataFrame(plain[:1])), 0, 0)
    objects = frame.astype(object)
    same(predict(graph, objects), model.predict(objects), 0, 0)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_sparse_rows_of_every_type(kind: Any) -> None:
    # (Of sparse rows the library multiplies by reciprocals, which are exact of powers of two.)
    training = np.r_[TRAINING, np.full((1, 4), 64)]
    tree = make_pipeline(MaxAbsScaler(), DecisionTreeClassifier(max_depth=6, random_state=0))
    for model, target in ((tree, LABELS), (MultiOutputClassifier(tree), BOTH)):
        graph = from_object(model.fit(kind(training), np.r_[target, target[:1]]))
        for dtype in (*INTEGERS, "float32", "float64"):
            rows = kind(_of(dtype))
            same(predict(graph, rows), model.predict(rows), 0, 0)


def test_compiled() -> None:
    model, _ = fitted("multi-output")
    compiled = hbtvm.compile(model, batch_sizes=64, threads=1)
    for dtype in (*INTEGERS, "float32", "float64"):
        rows = _of(dtype)
        same(compiled.predict(rows), model.predict(rows), 0, 0)
        same(compiled.predict(rows[:1]), model.predict(rows[:1]), 0, 0)
        same(compiled.predict(pd.DataFrame(rows)), model.predict(rows), 0, 0)
