"""`Parts`: the content of a CatBoost model, as both of its formats have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

NanTreatment = Literal["AsIs", "AsFalse", "AsTrue"]

NAN_TREATMENTS: tuple[NanTreatment, ...] = ("AsIs", "AsFalse", "AsTrue")
"""The result of comparing NaN with a border, in the order of the file's numbers: false, false, true."""

CTR_TYPES = (
    "Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue", "Counter", "FeatureFreq",
)  # fmt: skip
"""Types of counters, in the order of the file's numbers."""


@dataclass(frozen=True)
class Numeric:
    """A feature that is a number, and its borders."""

    column: int  # the input's column
    name: str
    borders: np.ndarray  # float32, shape (borders,)
    nan: NanTreatment = "AsIs"


@dataclass(frozen=True)
class Categorical:
    """A feature that is a category."""

    column: int  # the input's column
    name: str


@dataclass(frozen=True)
class Combination:
    """The features that a counter's hash is made of. Features count from 0 within their kind."""

    categories: tuple[int, ...]  # categorical features
    above: tuple[tuple[int, float], ...] = ()  # numeric features, and the border that they are compared with
    equal: tuple[tuple[int, int], ...] = ()  # categorical features, and the hash that they are compared with


@dataclass(frozen=True)
class Counter:
    """A statistic of the rows in training that had the same combination: a column of numbers."""

    key: Any  # of its table
    combination: Combination
    kind: str  # of `CTR_TYPES`
    border: int  # the target's border, or bucket
    # The value is ``((count + prior[0]) / (total + prior[1]) + shift) * scale`` in float32.
    prior: tuple[float, float]
    shift: float
    scale: float
    borders: np.ndarray  # float32, shape (borders,)


@dataclass(frozen=True)
class CounterTable:
    """The statistics of all combinations that training had."""

    hashes: np.ndarray  # uint64, shape (H,)
    counts: np.ndarray  # shape (H, columns): by the target's class; sum and count; or a count
    denominator: int = 0  # total of a kind ``"Counter"`` or ``"FeatureFreq"``


@dataclass(frozen=True)
class StepTree:
    """A tree that is not symmetric: arrays of its nodes, the root first."""

    split: np.ndarray  # int64, shape (M,)
    left: np.ndarray  # int64, shape (M,): -1 at leaves
    right: np.ndarray
    value: np.ndarray  # float64, shape (M, O)
    number: np.ndarray  # int64, shape (M,): CatBoost's number of each leaf
    weight: np.ndarray | None = None  # float64, shape (M,): weight of the training rows in each leaf


@dataclass(frozen=True)
class SymmetricTree:
    """A tree with the same split in all nodes of a level."""

    splits: np.ndarray  # int64, shape (depth,): split i is bit i of a leaf's number
    value: np.ndarray  # float64, shape (2 ** depth, O)
    weight: np.ndarray | None = None  # float64, shape (2 ** depth,), of the training rows


@dataclass(frozen=True)
class Parts:
    """A model. Splits are numbered through: borders of numeric features, then hashes of `one_hot`, then
    borders of counters."""

    numeric: Sequence[Numeric]
    categorical: Sequence[Categorical]
    one_hot: Sequence[tuple[int, np.ndarray]]  # a categorical feature, and hashes, int32
    counters: Sequence[Counter]
    trees: Sequence[SymmetricTree | StepTree]
    scale: float
    bias: np.ndarray  # float64, shape (O,)
    info: Mapping[str, Any]  # JSON values by key: ``"params"``, ``"class_params"``
    tables: Mapping[Any, CounterTable] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # kinds of features beside numbers and categories that the model reads
