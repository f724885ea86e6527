"""``KNNImputer``: means over the nearest training rows in place of missing values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import names_in
from hbtvm.frontends.transformers.imputers.simple import indicators
from hbtvm.frontends.transformers.projections.matrices import computed
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import missing_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import NA, IsMissing, is_nan
from hbtvm.graph.columns.table import Table, side_by_side
from hbtvm.graph.networks.network import TableRows, leaves
from hbtvm.operators.base import Node, constant
from hbtvm.operators.distances import Distance, Take, TopK
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select


def knn_imputer(record: Record, table: Table, where: Where) -> Table:
    """Read ``KNNImputer``: for each column, the nearest of the training rows that have a value in it."""
    if record.get("metric", "nan_euclidean") != "nan_euclidean":
        raise where.unsupported("has a custom metric, which is not supported.")
    weights: Any = record.get("weights", "uniform")
    if weights not in ("uniform", "distance"):
        raise where.unsupported("has custom weights; supported are uniform and distance.")
    missing = missing_of(record, where)
    marked = missing is NA or is_nan(missing)
    number = float(missing) if isinstance(missing, int | float) else np.nan
    if not marked and np.isnan(number):
        raise where.unsupported("has missing_values that are not a number, which is not supported.")
    names = names_in(record, table)
    table = accepting(unified(table), nan=marked)
    rows = TableRows(table, allow_nan=marked)
    known: Node = rows if marked else apply("where", apply("equal", rows, number), np.nan, rows)
    # What is imputed is compared in the rows' type, distances are computed in float64.
    lost = tuple(column.then(IsMissing(np.nan if marked else number)) for column in table.columns)
    lacks = TableRows(Table(lost), allow_nan=marked)
    points, valid = _training(record, len(table), where)
    kept = [i for i in range(len(table)) if valid[i] or record.get("keep_empty_features", False)]
    if not kept:
        raise where.unsupported("keeps no column, as training lacked all values.")
    impute = _imputing(known, points, record.whole("n_neighbors", 1), weights == "distance")

    def column(i: int) -> Node:
        return apply("where", select(lacks, [i]), impute(i), select(rows, [i]))

    output = concat([column(i) if valid[i] else constant(0.0) for i in kept])
    # Behind a network of several tables, these are read side by side.
    tables = side_by_side([leaf.table for leaf in leaves(output)])
    kept_names = None if names is None else tuple(names[i] for i in kept)
    filled = computed(tables, rows, output, "knnimputer", kept_names, narrow=True)
    if not record.get("add_indicator", False):
        return filled
    named = Table(table.columns, table.sparse, names)
    marks = indicators(record.record("indicator_"), named, missing, where)
    both = None if names is None or marks.names is None else (filled.names or ()) + marks.names
    return replace(side_by_side((filled, marks)), names=both)


def _training(record: Record, width: int, where: Where) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows, float64, shape (T, F), NaN if missing; and whether each column has values."""
    points = record.array("_fit_X", "f", 2).astype(np.float64)
    mask, valid = record.array("_mask_fit_X", "b", 2), record.array("_valid_mask", "b", 1)
    if points.shape != mask.shape or points.shape[1] != width or not np.array_equal(valid, ~mask.all(axis=0)):
        raise where.damaged(f"its training rows have the shape {points.shape}.")
    if not np.isfinite(points[~mask]).all():
        raise where.damaged("a number of its training rows is not finite.")
    return np.where(mask, np.nan, points), valid


def _imputing(x: Node, points: np.ndarray, k: int, by_distance: bool) -> Callable[[int], Node]:
    """Return a column's imputed values for rows that lack it."""
    squares = Distance(x, points, "nan_euclidean").checked()
    tops: dict[bytes, tuple[TopK, np.ndarray]] = {}

    def impute(column: int) -> Node:
        # Columns that the same training rows have a value in share their neighbours.
        has = ~np.isnan(points[:, column])
        key = has.tobytes()
        if key not in tops:
            donors = np.flatnonzero(has)
            tops[key] = TopK(select(squares, donors), min(k, len(donors))).checked(), donors
        top, donors = tops[key]
        count = top.k
        away = select(top, range(count))
        values = Take(select(top, range(count, 2 * count)), points[donors, column][:, None])
        # A row with which nothing is in common is not at any distance (NaN, of which kernels make the largest
        # number): it does not count.
        weight: Node = apply("less", away, float(np.finfo(np.float64).max))
        if by_distance:
            same = apply("equal", away, 0.0)
            near = apply("where", weight, apply("divide", 1.0, apply("sqrt", away)), 0.0)
            weight = apply("where", reduce("max", same), same, near)
        total = reduce("sum", weight)
        mean = apply("divide", reduce("sum", apply("multiply", weight, values)), total)
        # Nothing in common with any row: the mean of training.
        return apply("where", total, mean, float(np.nanmean(points[:, column])))

    return impute
