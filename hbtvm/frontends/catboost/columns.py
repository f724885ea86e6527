"""The columns that CatBoost's trees read: numbers, one-hot columns and counters, as feeds of a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hbtvm.frontends.catboost.flatbuffers import damaged
from hbtvm.frontends.catboost.parts import Combination, Counter, CounterTable, Parts
from hbtvm.graph.columns.counters import ABOVE, EQUAL, HASH, Counters
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.steps import Cast, Fill, Step
from hbtvm.graph.columns.table import Column, Made, Raw, Table


def feeds_of(parts: Parts, names: Sequence[str] | None, features: np.ndarray) -> tuple[Feed, ...]:
    """Return the feeds of some features of `hbtvm.frontends.catboost.trees.Splits`.

    `names`: names of the input's columns.
    `features`: ascending.
    Raises `ModelError` if the model is damaged.
    """
    numbers = len(parts.numeric)
    hot = [(feature, value) for feature, hashes in parts.one_hot for value in hashes.tolist()]
    elements = _Elements(parts, names)
    numeric = [parts.numeric[i].column for i in features[features < numbers].tolist()]
    feeds = tuple(Feed(Raw(column), where=elements.where(column)) for column in numeric)
    behind = (features[features >= numbers] - numbers).tolist()
    if not behind:
        return feeds
    operation = _operation(
        elements,
        [hot[i] for i in behind if i < len(hot)],
        [parts.counters[i - len(hot)] for i in behind if i >= len(hot)],
    )
    return feeds + tuple(Feed(Made(operation, i), where=f"CatBoost's column {i}") for i in range(len(behind)))


def _operation(elements: _Elements, hot: Sequence[tuple[int, int]], counters: Sequence[Counter]) -> Counters:
    equals = [elements.equal(feature, value) for feature, value in hot]
    # Counters of one combination share a table if training gave these the same hashes.
    tables: dict[tuple[Combination, bytes], tuple[int, np.ndarray]] = {}
    table, values, rows = list[int](), list[np.ndarray](), list[list[int]]()
    for counter in counters:
        read = elements.table(counter)
        hashes, first = np.unique(read.hashes, return_index=True)
        at, _ = tables.setdefault((counter.combination, hashes.tobytes()), (len(tables), hashes))
        if at == len(rows):
            rows.append(elements.of(counter.combination))
        table.append(at)
        values.append(_values(counter, read.counts[first], read.denominator))
    sizes = [len(hashes) for _, hashes in tables.values()]
    longest = max(map(len, rows), default=0)
    operation = Counters(
        Table(tuple(elements.inputs)),
        np.array([kind for kind, _, _ in elements.listed], np.int32),
        np.array([column for _, column, _ in elements.listed], np.int32),
        np.array([number for _, _, number in elements.listed], np.float64),
        np.array(equals, np.int32),
        np.array([[0] * (longest - len(row)) + [at + 1 for at in row] for row in rows], np.int32).reshape(
            len(rows), longest
        ),
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64),
        np.concatenate([np.zeros(0, np.uint64), *(hashes for _, hashes in tables.values())]),
        np.array(table, np.int32),
        np.concatenate([np.zeros(0, np.float32), *values]),
    )
    try:
        operation.validate()
    except ValueError as error:
        raise damaged(str(error)) from error
    return operation


class _Elements:
    """The elements of combinations, each once, and the columns that they read.

    `inputs`: the columns.
    `listed`: kind, column of `inputs`, and number of each element.
    """

    def __init__(self, parts: Parts, names: Sequence[str] | None) -> None:
        self._parts, self._names = parts, names
        self.inputs: list[Column] = []
        self.listed: list[tuple[int, int, float]] = []
        self._column_of: dict[tuple[str, int], int] = {}
        self._at: dict[tuple[int, int, float], int] = {}

    def of(self, combination: Combination) -> list[int]:
        """Return a combination's elements, in the order in which they are hashed."""
        hashed = [self._element(HASH, self._category(feature), 0.0) for feature in combination.categories]
        above = [self._element(ABOVE, self._number(feature), border) for feature, border in combination.above]
        return [*hashed, *above, *(self.equal(feature, value) for feature, value in combination.equal)]

    def equal(self, feature: int, value: int) -> int:
        """Return the element that a category has a hash."""
        return self._element(EQUAL, self._category(feature), float(value))

    def table(self, counter: Counter) -> CounterTable:
        """Return a counter's table."""
        if counter.key not in self._parts.tables:
            raise damaged("it lacks the table of a counter")
        return self._parts.tables[counter.key]

    def where(self, column: int) -> str:
        """Return the name of an input's column, for errors."""
        return f"column {column}" if self._names is None else f"column {self._names[column]!r}"

    def _element(self, kind: int, column: int, number: float) -> int:
        at = self._at.setdefault((kind, column, number), len(self.listed))
        if at == len(self.listed):
            self.listed.append((kind, column, number))
        return at

    def _input(self, kind: str, column: int, *steps: Step) -> int:
        at = self._column_of.setdefault((kind, column), len(self.inputs))
        if at == len(self.inputs):
            self.inputs.append(Column(Raw(column), steps))
        return at

    def _category(self, feature: int) -> int:
        """Return the column of a categorical feature's hash."""
        if not 0 <= feature < len(self._parts.categorical):
            raise damaged("a split reads an unknown feature")
        column = self._parts.categorical[feature].column
        return self._input("hash", column, HashText(self.where(column)))

    def _number(self, feature: int) -> int:
        """Return the column of a numeric feature."""
        if not 0 <= feature < len(self._parts.numeric):
            raise damaged("a split reads an unknown feature")
        numeric = self._parts.numeric[feature]
        fill = (Fill(math.inf),) if numeric.nan == "AsTrue" else ()
        return self._input("number", numeric.column, Cast("float32"), *fill)


def _values(counter: Counter, counts: np.ndarray, denominator: int) -> np.ndarray:
    """Return a counter's value by hash, float32, shape (H + 1,); the last is that of other hashes.

    `counts`, `denominator`: see `CounterTable`.
    """
    kind = counter.kind
    if kind in ("Borders", "Buckets"):
        border, classes = counter.border, counts.shape[1]
        if not 0 <= border < classes:
            raise damaged("a counter's border lies outside of the classes")
        # Two classes have one border.
        above = 1 if classes == 2 else border + 1
        good = counts[:, border] if kind == "Buckets" else counts[:, above:].sum(axis=1)
        total = counts.sum(axis=1)
    elif kind in ("Counter", "FeatureFreq"):
        good, total = counts[:, 0], np.full(len(counts), denominator)
    else:
        good, total = counts[:, 0], counts[:, 1]
    rest = denominator if kind in ("Counter", "FeatureFreq") else 0
    with np.errstate(all="ignore"):
        count, whole = np.append(good, 0).astype(np.float32), np.append(total, rest).astype(np.float32)
        first, second = np.float32(counter.prior[0]), np.float32(counter.prior[1])
        ratio = (count + first) / (whole + second)
        result: np.ndarray = (ratio + np.float32(counter.shift)) * np.float32(counter.scale)
    return result
