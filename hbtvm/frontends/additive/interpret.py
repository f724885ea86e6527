"""InterpretML's explainable boosting machines: bins of each column, and a table of scores for each term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.additive.term_trees import Axis, term_tree
from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, floats, floats_of
from hbtvm.frontends.sklearn.common import labels_of, require_own_arrays
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Encode, Lookup
from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.formulas import sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce
from hbtvm.words.printable import shown

_MOST_CATEGORIES = 1 << 20
_WHOLE = 1e16  # from here on, numpy writes whole numbers with an exponent


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read an ``ExplainableBoostingClassifier``."""
    labels = labels_of(record.get("classes_", ()))
    scores = _scores(record, table, where)
    if scores.width != (1 if len(labels) == 2 else len(labels)):
        raise where.damaged(f"it has {scores.width} scores for {len(labels)} classes.")
    link = choice(record, "link_", where, ("logit", "mlogit"))
    if (link == "logit") != (scores.width == 1):
        raise where.damaged(f"it has {scores.width} scores and the link {link}.")
    outputs: dict[str, Node] = {"decision": scores}
    if scores.width == 1:
        outputs |= {"index": apply("greater", scores, 0.0), "proba": with_complement(sigmoid(scores))}
    else:
        outputs |= {"index": reduce("argmax", scores), "proba": softmax(scores)}
    return Predictor("classifier", outputs, (labels,), trees=scores)


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read an ``ExplainableBoostingRegressor``."""
    scores = _scores(record, table, where)
    if scores.width != 1:
        raise where.damaged(f"it has {scores.width} scores.")
    link = choice(record, "link_", where, ("identity", "log"))
    response: Node = scores if link == "identity" else apply("exp", scores)
    return Predictor("regressor", {"response": response}, trees=scores)


def _scores(record: Record, table: Table, where: Where) -> Trees:
    """Return the sum of the terms' scores and the intercept, as trees over columns of numbers and bins."""
    if record.get("has_fitted_", False) is not True:
        raise UnsupportedModel(f"{where.step} is not fitted; hbtvm compiles trained models.")
    intercept = np.atleast_1d(floats(record, "intercept_", where))
    columns = _Columns(record, table, where)
    terms, tables = record.sequence("term_features_"), record.sequence("term_scores_")
    if len(terms) != len(tables):
        raise where.damaged(f"it has {len(tables)} tables for {len(terms)} terms.")
    parts, trees = [], []
    for at, (features, values) in enumerate(zip(terms, tables, strict=True)):
        if not isinstance(features, tuple) or not all(type(feature) is int for feature in features):
            raise where.damaged(f"term {at} has no columns.")
        scores = floats_of(values, f"term_scores_[{at}]", where)
        axes = [columns.axis(feature, len(features)) for feature in features]
        shape = tuple(size for _, size in axes) + ((len(intercept),) if len(intercept) > 1 else ())
        if scores.shape != shape:
            raise where.damaged(f"term {at} has a table of the shape {scores.shape}, not {shape}.")
        parts.append(scores)
        trees.append(term_tree(scores.reshape(*shape[: len(axes)], -1), [axis for axis, _ in axes]))
    require_own_arrays(parts)
    ensemble = assemble(
        trees or [term_tree(np.zeros((len(intercept),)), ())],
        n_features=len(columns.columns),
        compare_dtype="float64",
        tree_output=np.zeros(max(len(trees), 1)),
        base_score=intercept,
    )
    return Trees(TableRows(Table(tuple(columns.columns)), allow_nan=True, allow_inf=True), ensemble)


class _Columns:
    """The columns that terms read: numbers as they are, and the numbers of the bins of categories."""

    def __init__(self, record: Record, table: Table, where: Where) -> None:
        self._table, self._where = table, where
        self._types, self._bins = record.sequence("feature_types_in_"), record.sequence("bins_")
        if not len(self._types) == len(self._bins) == len(table):
            raise where.damaged(f"it has bins of {len(self._bins)} columns, and {len(table)} columns.")
        self.columns: list[Column] = []
        self._at: dict[tuple[int, int], int] = {}
        self._encoders: dict[int, tuple[Encode, list[str | None]]] = {}
        if not self._bins:
            raise where.damaged("it has no columns.")
        # Rows without columns can't be counted, so at least one column is read.
        self.axis(0, 1)

    def axis(self, feature: int, terms: int) -> tuple[Axis, int]:
        """Return the axis of a column in a term of `terms` columns, and its number of bins."""
        if not 0 <= feature < len(self._bins) or not isinstance(self._bins[feature], (list, tuple)):
            raise self._where.damaged(f"it has no bins of column {feature}.")
        levels = self._bins[feature]
        if not levels:
            raise self._where.damaged(f"it has no bins of column {feature}.")
        level = min(len(levels), terms) - 1
        kind = self._types[feature]
        if kind == "continuous":
            cuts = floats_of(levels[level], f"bins_[{feature}]", self._where, None)
            if np.any(cuts[1:] <= cuts[:-1]):
                raise self._where.damaged(f"the bins of column {feature} do not ascend.")
            return Axis(self._column(feature, 0, self._table.columns[feature]), cuts), len(cuts) + 3
        if kind not in ("nominal", "ordinal"):
            raise self._where.unsupported(
                f"has a column of the type {shown(kind, 40)}; supported are continuous, nominal and ordinal."
            )
        bins = self._categories(feature, levels[level])
        encoder, texts = self._encoder(feature, levels)
        unknown = max(bins.values(), default=0) + 1
        lookup = Lookup(
            np.array(
                [bins.get(text, unknown) if text is not None else 0 for text in texts] + [unknown], np.float64
            )
        )
        column = self._table.columns[feature].then(encoder, lookup)
        return Axis(self._column(feature, level, column), None), unknown + 1

    def _column(self, feature: int, level: int, column: Column) -> int:
        if (feature, level) not in self._at:
            self._at[feature, level] = len(self.columns)
            self.columns.append(column)
        return self._at[feature, level]

    def _categories(self, feature: int, bins: Any) -> dict[str, int]:
        if not isinstance(bins, dict) or len(bins) > _MOST_CATEGORIES:
            raise self._where.damaged(f"column {feature} has no categories.")
        for text, number in bins.items():
            if not isinstance(text, str) or type(number) is not int or not 0 < number <= len(bins):
                raise self._where.damaged(f"column {feature} has a category without a bin.")
        return bins

    def _encoder(self, feature: int, levels: Sequence[Any]) -> tuple[Encode, list[str | None]]:
        """Return a column's encoder, and the category of each code but the last; None for missing values."""
        if feature not in self._encoders:
            texts = list(dict.fromkeys(text for bins in levels for text in self._categories(feature, bins)))
            # The library compares the texts of numbers.
            numbers = {number: text for text in texts if (number := self._number(text)) is not None}
            known = (*texts, *numbers, np.nan, None)
            self._encoders[feature] = Encode(known), [*texts, *numbers.values(), None, None]
        return self._encoders[feature]

    def _number(self, text: str) -> float | None:
        """Return the number that the library writes as a text; None if there is none."""
        try:
            number = float(text)
        except ValueError:
            return None
        if np.isnan(number) or text != str(np.float64(number)).removesuffix(".0"):
            return None
        if _WHOLE <= abs(number) < np.inf:
            raise self._where.unsupported(f"has the category {text}; numbers below 1e16 are supported.")
        return number
