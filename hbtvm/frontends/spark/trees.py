"""Spark's trees, forests and gradient-boosted trees.

A number goes left if it is at most the threshold, NaN right. A category goes left if the split lists it among
the left categories; if these are more than half of all categories, Spark keeps the others, and every value
that is no category goes left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.spark.classes import graph, labels_of, likeliest
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.kernel_input import Coded, resolve
from hbtvm.graph.columns.steps import Cast, Encode
from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.graph import Graph
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.covers import cover_of
from hbtvm.graph.trees.ensemble import CategorySet, TreeEnsemble
from hbtvm.operators.base import Input
from hbtvm.operators.formulas import shares, sigmoid
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat

_MOST_CATEGORIES = 1 << 20  # bound of a split's categories, as files may claim any number


def classifier(record: Record) -> Graph:
    """Read ``DecisionTreeClassificationModel`` or ``RandomForestClassificationModel``."""
    classes = record.whole("numClasses", 1)
    parts = _parts(record)
    values = [nodes["impurityStats"] for nodes in parts]
    if any(value.shape[1] != classes or not np.isfinite(value).all() for value in values):
        raise ModelError(f"the {record.kind} is damaged: its leaves do not have {classes} classes.")
    if record.kind.startswith("RandomForest"):
        totals = [value.sum(axis=1, keepdims=True) for value in values]
        values = [value / np.where(total, total, 1.0) for value, total in zip(values, totals, strict=True)]
    raw = Input(classes)
    nodes = likeliest(record, raw, shares(raw), Where(kind=record.kind))
    output = OutputSpec("classifier", classes, nodes, (labels_of(record, classes),))
    return graph(record, _ensemble(record, parts, values), output)


def regressor(record: Record) -> Graph:
    """Read ``DecisionTreeRegressionModel``, ``RandomForestRegressionModel`` or ``GBTRegressionModel``."""
    return graph(record, _sums(record), OutputSpec("regressor", 1, {"response": Input(1)}))


def boosted_classifier(record: Record) -> Graph:
    """Read ``GBTClassificationModel``, of two classes."""
    margin = Input(1)
    raw = concat([apply("negative", margin), margin])
    first = sigmoid(margin, -2.0)
    proba = concat([first, apply("subtract", 1.0, first)])
    nodes = likeliest(record, raw, proba, Where(kind=record.kind))
    output = OutputSpec("classifier", 1, nodes, (labels_of(record, 2),))
    return graph(record, _sums(record), output)


def with_whole_categories(record: Record, table: Table) -> Table:
    """Return the table that trees read, with whole numbers in the columns that have splits on categories.

    Spark finds 0.5 in no set of categories, whereas `TreeEnsemble` cuts it to 0: values that are no category
    become the number behind the last.
    """
    counts: dict[int, int] = {}
    for nodes in _parts(record):
        for feature, count in _categorical(nodes):
            counts[feature] = max(counts.get(feature, 0), count)
    columns = list(table.columns)
    for feature, count in counts.items():
        if not 0 <= feature < len(columns):
            raise ModelError(
                f"the {record.kind} is damaged: a split reads column {feature} of {len(columns)}."
            )
        if not _is_whole(columns[feature]):
            encoder = Encode(tuple(map(float, range(count))), "code")
            columns[feature] = columns[feature].then(encoder, Cast("float64"))
    return replace(table, columns=tuple(columns)) if counts else table


def _is_whole(column: Column) -> bool:
    form = resolve(column)
    return isinstance(form, Coded) and bool(((form.values >= 0) & (form.values % 1 == 0)).all())


def _parts(record: Record) -> list[dict[str, np.ndarray]]:
    parts = record.sequence("trees")
    if not parts or not all(isinstance(nodes, dict) for nodes in parts):
        raise ModelError(f"the {record.kind} is damaged: it has no trees.")
    if "numTrees" in record and "tree_weights" in record and record.whole("numTrees") != len(parts):
        raise ModelError(
            f"the {record.kind} is damaged: it has {len(parts)} of {record.get('numTrees')} trees."
        )
    return parts


def _sums(record: Record) -> TreeEnsemble:
    """Return trees with the predictions of their leaves, times their weights."""
    parts = _parts(record)
    weights = np.ones(len(parts))
    if record.kind.startswith("GBT"):
        weights = np.asarray(record.sequence("tree_weights"), np.float64)
        if weights.shape != (len(parts),):
            raise ModelError(f"the {record.kind} is damaged: it has {len(weights)} weights of trees.")
    predictions = zip(parts, weights.tolist(), strict=True)
    return _ensemble(record, parts, [nodes["prediction"][:, None] * weight for nodes, weight in predictions])


def _ensemble(
    record: Record, parts: Sequence[dict[str, np.ndarray]], values: Sequence[np.ndarray]
) -> TreeEnsemble:
    outputs = values[0].shape[1]
    divides = record.kind == "RandomForestRegressionModel"
    return assemble(
        [_tree(record, nodes, value) for nodes, value in zip(parts, values, strict=True)],
        n_features=record.whole("numFeatures", 1),
        compare_dtype="float64",
        tree_output=np.zeros(len(parts), np.int32),
        base_score=np.zeros(outputs),
        divisor=len(parts) if divides else 1,
    )


def _tree(record: Record, nodes: dict[str, np.ndarray], value: np.ndarray) -> Tree:
    if not np.array_equal(nodes["id"], np.arange(len(nodes["id"]))):
        raise ModelError(f"the {record.kind} is damaged: a tree lacks nodes.")
    left, right = nodes["leftChild"].astype(np.int64), nodes["rightChild"].astype(np.int64)
    return Tree(
        feature=nodes["split.featureIndex"],
        threshold=nodes["split.leftCategoriesOrThreshold"][:, 0]
        if nodes["split.leftCategoriesOrThreshold"].shape[1]
        else np.zeros(len(left)),
        left=np.where(left < 0, -1, left),
        right=np.where(left < 0, -1, right),
        default_left=np.zeros(len(left), bool),
        value=value,
        categories=_category_sets(record, nodes),
        cover=_cover(record, nodes),
        # Spark numbers the leaves from left to right, as the ids of nodes do.
        leaf_id=np.cumsum(left < 0) - 1,
    )


def _cover(record: Record, nodes: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the weights of the rows in training, of which Spark's importances of features are made."""
    stats = nodes.get("impurityStats")
    if stats is None or not stats.shape[1]:
        return None
    # By class; of regression trees, also within GBTClassificationModel, the sums of 1, y and y².
    by_class = record.kind.endswith("ClassificationModel") and not record.kind.startswith("GBT")
    return cover_of(stats.sum(axis=1) if by_class else stats[:, 0], len(stats))


def _categorical(nodes: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Return feature and number of categories of each split on categories."""
    chosen = (nodes["leftChild"] >= 0) & (nodes["split.numCategories"] >= 0)
    pairs = np.stack([nodes["split.featureIndex"][chosen], nodes["split.numCategories"][chosen]], axis=1)
    return [(int(feature), int(count)) for feature, count in np.unique(pairs, axis=0)]


def _category_sets(record: Record, nodes: dict[str, np.ndarray]) -> dict[int, CategorySet]:
    sets, known = dict[int, CategorySet](), dict[tuple[int, bytes], CategorySet]()
    for node in np.flatnonzero((nodes["leftChild"] >= 0) & (nodes["split.numCategories"] >= 0)).tolist():
        count, left = int(nodes["split.numCategories"][node]), nodes["split.leftCategoriesOrThreshold"][node]
        left = left[~np.isnan(left)]
        key = count, left.tobytes()
        if key not in known:
            inside = (left >= 0) & (left < count) & (left % 1 == 0)
            if not 0 < count <= _MOST_CATEGORIES or not inside.all():
                raise ModelError(f"the {record.kind} is damaged: a split has no set of {count} categories.")
            member = np.zeros(count, bool)
            member[left.astype(np.int64)] = True
            known[key] = CategorySet(member, outside_left=2 * len(left) > count)
        sets[node] = known[key]
    return sets
