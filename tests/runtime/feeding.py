"""Frames and readers of them, for tests of feeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Arithmetic, Encode, Equals, Fill, Function, IsMissing, Lookup
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.feeds.reader import FeedReader

NAMES = ("age", "pay", "size", "job", "plan", "kind", "flag", "unread")
JOBS = ("tech", "sales", "häuser", "")
N = 300


class Norm(RowOperation):
    """Rows over their largest absolute value."""

    def __init__(self, inputs: Table) -> None:
        self.inputs, self.width = inputs, len(inputs)

    def reference(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return x / np.abs(x).max(axis=1, keepdims=True)


def feeds() -> list[Feed]:
    fill = Fill(0.0)
    norm = Norm(Table((Column(Raw(0), (fill,)), Column(Raw(1), (fill,)))))
    return [
        Feed(Raw(0), where="column 'age'"),
        Feed(Raw(1), allow_inf=False, where="column 'pay'"),
        Feed(Raw(3), (Fill("tech"), Encode(JOBS))),
        Feed(Raw(3), (Encode((*JOBS, np.nan)),)),
        Feed(Raw(3), (IsMissing(), Encode((0.0, 1.0)))),
        Feed(Raw(4), (Encode(("basic", "pro", np.nan)),)),
        Feed(Raw(5), (Encode((3, 1, 2, 2**53 + 1)),)),
        Feed(Raw(5), (Fill(3, 2), Encode((1, 3, 2)))),
        Feed(Raw(6), (Encode((False, True)),)),
        Feed(Raw(2), (Encode((0.5, -1.0, np.nan)),)),
        Feed(Raw(1), (Function("absolute"), Arithmetic("add", 1.0), Function("sqrt")), where="column 'pay'"),
        Feed(Raw(4), (Encode(("basic", "pro")), Lookup(np.array([0.25, -1.0, 9.0]))), where="column 'plan'"),
        Feed(Raw(3), (Fill("tech"), Encode(JOBS), Equals((0, 2))), where="column 'job'"),
        Feed(Made(norm, 1), where="Norm's column 1"),
    ]


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    job = pd.Series(rng.choice(["tech", "sales", "häuser", "", "unknown"], N), dtype="str")
    plan = pd.Series(rng.choice(["basic", "pro", "other"], N), dtype="str")
    age, pay = rng.normal(40, 9, N).round(1), rng.normal(size=N)
    job[rng.random(N) < 0.2] = np.nan
    plan[rng.random(N) < 0.2] = np.nan
    age[rng.random(N) < 0.2] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "pay": pay,
            "size": rng.choice([0.5, -1.0, 2.0, np.nan], N),
            "job": job,
            "plan": plan,
            "kind": rng.choice([1, 2, 3, 4, 2**53, 2**53 + 1], N),
            "flag": rng.random(N) < 0.5,
            "unread": "x",
        }
    )


def reader(
    by_name: bool = True, dtypes: tuple[str, ...] = ("float32", "float64"), **given: Any
) -> FeedReader:
    spec = InputSpec(len(NAMES), NAMES, by_name=by_name)
    return FeedReader(spec, given.pop("feeds", None) or feeds(), "float64", dtypes, **given)


def oracle(X: pd.DataFrame, of: list[Feed] | None = None) -> np.ndarray:
    """What `Evaluator` computes from arrays of numbers, and of Python values with NaN."""
    raw = []
    for name in X.columns:
        values = X[name].to_numpy()
        if values.dtype.kind != "f" and name != "flag":
            values = np.array([*X[name].tolist(), None], object)[:-1]
        raw.append(values.astype(float) if name == "flag" else values)
    evaluator = Evaluator(raw)
    columns = [evaluator.column(feed.source, feed.steps) for feed in of or feeds()]
    return np.column_stack([column.astype(np.float64) for column in columns])
