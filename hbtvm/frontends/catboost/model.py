"""CatBoost's models as graphs: trees over a matrix of numbers, one-hot columns and counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import feature_count
from hbtvm.frontends.catboost import cbm, json_file
from hbtvm.frontends.catboost.flatbuffers import damaged
from hbtvm.frontends.catboost.output import estimator_of, output
from hbtvm.frontends.catboost.parts import Combination, Counter, CounterTable, Parts
from hbtvm.frontends.catboost.trees import Splits, ensemble, used
from hbtvm.graph.columns.counters import Counters, Equal, HashTable, Part
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.steps import Cast, Fill, Step
from hbtvm.graph.columns.table import Column, Made, Raw, Table
from hbtvm.graph.graph import Graph, InputSpec


def from_bytes(content: bytes, estimator: str = "") -> Graph:
    """Read the content of a file.

    `estimator`: the class whose outputs the model has; by default the estimator that its loss is for.
    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if the model reads texts or embeddings, or
    has an unsupported loss.
    """
    parts = cbm.read(content) if content.startswith(b"CBM1") else json_file.read(content)
    if parts.others:
        raise UnsupportedModel(
            f"the CatBoost model reads {' and '.join(parts.others)} features; supported are numbers and "
            "categories."
        )
    if not parts.trees:
        raise UnsupportedModel("the CatBoost model has no trees; hbtvm compiles trained models.")
    name = estimator or estimator_of(parts.info)
    return _graph(parts, name)


def _graph(parts: Parts, estimator: str) -> Graph:
    spec = output(estimator, parts.info, len(parts.bias))
    inputs = _inputs(parts)
    splits = Splits(parts)
    columns = np.zeros(len(parts.numeric) + len(splits.feature) + 1, np.int64)
    for i, feature in enumerate(parts.numeric):
        columns[i] = feature.column
    if not parts.categorical:
        trees = ensemble(parts, splits, columns, inputs.n_features)
        return Graph("catboost", estimator, inputs, trees, spec)
    features = used(parts, splits)
    if not len(features):
        # Constant trees read no column.
        trees = ensemble(parts, splits, columns, inputs.n_features)
        return Graph("catboost", estimator, inputs, trees, spec)
    feeds = _Feeds(parts, inputs.feature_names).of(features)
    columns = np.zeros(int(features[-1]) + 1, np.int64)
    columns[features] = np.arange(len(features))
    trees = ensemble(parts, splits, columns, len(feeds))
    return Graph("catboost", estimator, inputs, trees, spec, feeds)


def _inputs(parts: Parts) -> InputSpec:
    features = (*parts.numeric, *parts.categorical)
    places = [feature.column for feature in features]
    if not places or min(places) < 0 or len(set(places)) < len(places):
        raise damaged("its features have no columns, or the same")
    count = feature_count(max(places) + 1)
    names = {feature.column: feature.name or str(feature.column) for feature in features}
    listed = tuple(names.get(column, str(column)) for column in range(count)) if count <= 1 << 17 else ()
    automatic = all(name == str(column) for column, name in enumerate(listed))
    return InputSpec(
        n_features=count,
        feature_names=None if automatic else listed,
        categories={feature.column: () for feature in parts.categorical},
        sparse_refused="CatBoost's categories are not numbers" if parts.categorical else "",
    )


class _Feeds:
    """The columns that trees read."""

    def __init__(self, parts: Parts, names: Sequence[str] | None) -> None:
        self._parts, self._names = parts, names
        self._inputs: list[Column] = []
        self._at: dict[tuple[str, int], int] = {}

    def of(self, features: np.ndarray) -> tuple[Feed, ...]:
        """Return the feeds of some features of `Splits`."""
        parts = self._parts
        numbers = len(parts.numeric)
        hot = [(feature, value) for feature, hashes in parts.one_hot for value in hashes.tolist()]
        numeric = [
            Feed(Raw(parts.numeric[i].column), where=self._where(parts.numeric[i].column))
            for i in features[features < numbers].tolist()
        ]
        behind = (features[features >= numbers] - numbers).tolist()
        equals = [hot[i] for i in behind if i < len(hot)]
        counters = [parts.counters[i - len(hot)] for i in behind if i >= len(hot)]
        made: list[Part] = []
        for feature in dict.fromkeys(feature for feature, _ in equals):
            values = tuple(value for other, value in equals if other == feature)
            made.append(Equal(self._category(feature), values))
        order: list[int] = []
        for combination in dict.fromkeys(counter.combination for counter in counters):
            for some in self._by_hashes([c for c in counters if c.combination == combination]):
                order += (counters.index(counter) for counter in some)
                made.append(self._lookup(combination, some))
        if not made:
            return tuple(numeric)
        operation = Counters(Table(tuple(self._inputs)), tuple(made))
        try:
            operation.validate()
        except ValueError as error:
            raise damaged(str(error)) from error
        place = np.argsort(order)
        indices = [*range(len(equals)), *(len(equals) + int(i) for i in place)]
        where = "CatBoost's counter"
        return (*numeric, *(Feed(Made(operation, i), where=f"{where} {i}") for i in indices))

    def _where(self, column: int) -> str:
        return f"column {column}" if self._names is None else f"column {self._names[column]!r}"

    def _input(self, kind: str, column: int, *steps: Step) -> int:
        at = self._at.setdefault((kind, column), len(self._inputs))
        if at == len(self._inputs):
            self._inputs.append(Column(Raw(column), steps))
        return at

    def _category(self, feature: int) -> int:
        """Return the operation's column of a categorical feature's hash."""
        if not 0 <= feature < len(self._parts.categorical):
            raise damaged("a split reads an unknown feature")
        column = self._parts.categorical[feature].column
        return self._input("hash", column, HashText(self._where(column)))

    def _number(self, feature: int) -> int:
        """Return the operation's column of a numeric feature."""
        if not 0 <= feature < len(self._parts.numeric):
            raise damaged("a split reads an unknown feature")
        numeric = self._parts.numeric[feature]
        fill = (Fill(math.inf),) if numeric.nan == "AsTrue" else ()
        return self._input("number", numeric.column, Cast("float32"), *fill)

    def _lookup(self, combination: Combination, counters: Sequence[Counter]) -> HashTable:
        table = self._table(counters[0])
        hashes, first = np.unique(table.hashes, return_index=True)
        values = np.stack([_values(counter, self._table(counter), first) for counter in counters], axis=1)
        return HashTable(
            tuple(self._category(feature) for feature in combination.categories),
            tuple((self._number(feature), border) for feature, border in combination.above),
            tuple((self._category(feature), value) for feature, value in combination.equal),
            hashes,
            values,
        )

    def _table(self, counter: Counter) -> CounterTable:
        if counter.key not in self._parts.tables:
            raise damaged("it lacks the table of a counter")
        return self._parts.tables[counter.key]

    def _by_hashes(self, counters: Sequence[Counter]) -> list[list[Counter]]:
        """Return groups of counters whose tables have the same hashes in the same order."""
        groups: dict[bytes, list[Counter]] = {}
        for counter in counters:
            groups.setdefault(self._table(counter).hashes.tobytes(), []).append(counter)
        return list(groups.values())


def _values(counter: Counter, table: CounterTable, places: np.ndarray) -> np.ndarray:
    """Return a counter's value by hash, float32, shape (H + 1,); the last is that of other hashes."""
    counts, kind = table.counts[places], counter.kind
    if kind in ("Borders", "Buckets"):
        border, classes = counter.border, counts.shape[1]
        if not 0 <= border < classes:
            raise damaged("a counter's border lies outside of the classes")
        total = counts.sum(axis=1)
        # Two classes have one border.
        above = 1 if classes == 2 else border + 1
        good = counts[:, border] if kind == "Buckets" else counts[:, above:].sum(axis=1)
        good, total = np.append(good, 0), np.append(total, 0)
    elif kind in ("Counter", "FeatureFreq"):
        good = np.append(counts[:, 0], 0)
        total = np.full(len(good), table.denominator)
    else:
        good, total = np.append(counts[:, 0], 0), np.append(counts[:, 1], 0)
    with np.errstate(all="ignore"):
        count, whole = good.astype(np.float32), total.astype(np.float32)
        first, second = np.float32(counter.prior[0]), np.float32(counter.prior[1])
        ratio = (count + first) / (whole + second)
        result: np.ndarray = (ratio + np.float32(counter.shift)) * np.float32(counter.scale)
    return result
