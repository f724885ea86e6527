"""YDF's data specification: columns, their categories, and how missing and unknown values count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import feature_count
from hbtvm.frontends.ydf.wire import Message
from hbtvm.graph.columns.steps import Encode
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.words.printable import shown

MOST_CATEGORIES = 1 << 20
"""Bound of all columns' categories, as a file may claim any number."""


class Kind(IntEnum):
    """Types of columns that are supported."""

    NUMERICAL = 1
    CATEGORICAL = 4
    BOOLEAN = 7
    DISCRETIZED_NUMERICAL = 9


_BOOL = 12  # the type of the values in training

_OTHERS = {5: "CATEGORICAL_SET", 10: "HASH", 11: "NUMERICAL_VECTOR_SEQUENCE"}


@dataclass(frozen=True)
class Feature:
    """A column that the trees read."""

    name: str
    kind: Kind
    boundaries: np.ndarray  # float32, shape (B,): of a discretized number
    # Of categories: YDF's numbers of `values`, 0 for those that are unknown
    values: tuple[Any, ...] = ()
    numbers: tuple[int, ...] = ()
    missing: tuple[Any, ...] = ()  # values that are missing
    size: int = 0  # YDF's numbers of categories
    integerized: bool = False  # whether values are YDF's numbers, of which others have no defined answer

    @property
    def categorical(self) -> bool:
        """Whether the trees read codes."""
        return self.kind == Kind.CATEGORICAL


def features_of(columns: Sequence[Message], used: Sequence[int]) -> list[Feature]:
    """Return some columns of the data specification; errors as in `_feature`."""
    if len({*used}) < len(used) or any(number >= len(columns) for number in used):
        raise ModelError("the YDF model is damaged: it reads columns that it does not have.")
    features, room = [], MOST_CATEGORIES
    for number in used:
        features.append(_feature(columns[number], room))
        room -= features[-1].size
    return features


def _feature(column: Message, room: int) -> Feature:
    """Return a column of the data specification, which has at most `room` categories.

    Raises `UnsupportedModel` for other types than `Kind`. Raises `ModelError` if it is damaged.
    """
    name, kind = column.text(2), column.whole(1)
    if kind not in list(Kind):
        raise UnsupportedModel(
            f"the YDF model reads the column '{shown(name, 60)}' of the type {_OTHERS.get(kind, kind)}, "
            "which is not supported; supported are numbers, bools and categories."
        )
    boundaries = column.message(8).numbers(1, "<f4")
    if np.any(np.isnan(boundaries)) or np.any(np.diff(boundaries) < 0):
        raise ModelError("the YDF model is damaged: the bins of a column do not rise.")
    if kind != Kind.CATEGORICAL:
        return Feature(name, Kind(kind), boundaries)
    spec = column.message(6)
    size = spec.whole(2)
    if not 0 <= size <= room:
        raise UnsupportedModel(f"the YDF model has more than {MOST_CATEGORIES:,} categories in its columns.")
    missing: tuple[Any, ...] = (None, float("nan"))
    integerized = bool(spec.whole(5))
    if integerized:
        plain: dict[Any, int] = {number: number for number in range(size)}
        missing = (-1, *missing)
    else:
        plain = _values(dictionary(spec), column.whole(12) == _BOOL)
        missing = ("", *missing)
    numbers = tuple(plain.values())
    return Feature(name, Kind.CATEGORICAL, boundaries, tuple(plain), numbers, missing, size, integerized)


def dictionary(spec: Message) -> dict[str, int]:
    """Return the number of each category of a ``CategoricalSpec``, in ascending order."""
    numbers = {}
    size = spec.whole(2)
    for item in spec.messages(7):
        number = item.message(2).whole(1)
        if not 0 <= number < size:
            raise ModelError("the YDF model is damaged: a category has an unknown number.")
        numbers[item.text(1)] = number
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


def _values(numbers: dict[str, int], bools: bool) -> dict[Any, int]:
    """Return the numbers of categories as rows may hold them: YDF takes integers and bools for their texts.

    `bools`: whether training had bools, which CSV files hold as ``True`` and ``False``.
    """
    known: dict[Any, int] = {text: number for text, number in numbers.items() if number}
    integers = {int(text): number for text, number in known.items() if _is_integer(text)}
    if integers:
        # To Python, 1 and True are the same category.
        return {**known, **integers}
    for text, value in (("true", True), ("false", False)):
        if text in known:
            known[value] = known[text]
            if bools:
                known[str(value)] = known[text]
    return known


def _is_integer(text: str) -> bool:
    return len(text) < 20 and re.fullmatch("0|-?[1-9][0-9]*", text) is not None


def rows_of(features: Sequence[Feature]) -> tuple[InputSpec, Table]:
    """Return the specification of rows, whose columns have names, and the table that the trees read."""
    names = tuple(feature.name for feature in features)
    feature_count(len(names))
    if len({*names}) < len(names):
        raise ModelError("the YDF model is damaged: two columns have the same name.")
    inputs = InputSpec(len(names), feature_names=names, by_name=True)
    columns = []
    for index, feature in enumerate(features):
        column = Column(Raw(index))
        if feature.categorical:
            unknown: Literal["error", "code"] = "error" if feature.integerized else "code"
            encoder = Encode((*feature.values, *feature.missing), unknown, f"column '{shown(feature.name)}'")
            column = column.then(encoder)
        columns.append(column)
    return inputs, Table(tuple(columns), False, names)
