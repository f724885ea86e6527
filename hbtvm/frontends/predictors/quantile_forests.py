"""The regressors of quantile-forest: means, or quantiles over trees whose leaves hold one training value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.predictors.reading import floats_of
from hbtvm.frontends.sklearn.common import accepts_missing, nodes_of, require_own_arrays, tree_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import Repeat, concat, reduce, select

_MOST_TREES = 256  # of quantiles, which compare the values of all trees with each other


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``RandomForestQuantileRegressor`` or ``ExtraTreesQuantileRegressor``: its default quantiles."""
    trees, forest = record.records("estimators_"), record.record("forest_")
    if not trees or len(forest.args) != 4:
        raise where.damaged("its forest has no trees, or no values.")
    if forest.args[3] is not False:
        raise where.unsupported("is stored as a sparse matrix; fit it with sparse_pickle=False.")
    targets = floats_of(forest.args[0], "y_train", where, None, None)
    leaves = as_array(forest.args[1], f"the leaves of {where.step}", "iu", 4)
    nodes = [nodes_of(tree) for tree in trees]
    if len(leaves) != len(trees) or leaves.shape[2] != len(targets) or not targets.size:
        raise where.damaged("its leaves do not fit its trees.")
    if leaves.size and not 0 <= leaves.min() <= leaves.max() <= targets.shape[1]:
        raise where.damaged("a leaf has an unknown training row.")
    if leaves.shape[1] < max(map(len, nodes)) or not leaves.shape[3]:
        raise where.damaged("a tree has more nodes than values.")
    require_own_arrays([*nodes, leaves])
    quantiles = _quantiles(record.get("default_quantiles", None), where)
    single = record.get("max_samples_leaf", 1) == 1 and leaves.shape[3] == 1
    if not single and quantiles:
        raise where.unsupported(
            "predicts quantiles over leaves of several training rows; supported are max_samples_leaf=1 (the "
            "default), and default_quantiles='mean'."
        )
    if quantiles and len(trees) > _MOST_TREES:
        raise where.unsupported(
            f"predicts quantiles over {len(trees)} trees; at most {_MOST_TREES} are supported."
        )
    if len(quantiles) > 1 and len(targets) > 1:
        raise where.unsupported("predicts several quantiles of several targets; choose one default quantile.")
    rows = TableRows(table, allow_nan=accepts_missing(trees[0], trees[0].version()), allow_inf=False)
    if not single:
        return Predictor("regressor", {"response": _weighted_mean(rows, nodes, targets, leaves)})
    bounds = as_array(forest.args[2], f"the bounds of {where.step}", "f", 3)
    values = [_leaf_values(leaves[at, : len(part)], targets) for at, part in enumerate(nodes)]
    if record.get("monotonic_cst", None) is not None:
        if bounds.shape[0] != len(trees) or bounds.shape[1] < leaves.shape[1] or bounds.shape[2] != 2:
            raise where.damaged("its bounds do not fit its trees.")
        ends = [bounds[at, : len(part)] for at, part in enumerate(nodes)]
        values = [np.clip(v, end[:, :1], end[:, 1:]) for v, end in zip(values, ends, strict=True)]
    if not quantiles:
        mean = _forest(rows, nodes, values, np.zeros(len(nodes)), len(targets), len(nodes))
        return Predictor("regressor", {"response": mean}, trees=mean)
    outputs = np.arange(len(nodes)) * len(targets)
    apart = _forest(rows, nodes, values, outputs, len(targets) * len(nodes), 1)
    parts: list[Node] = []
    for target in range(len(targets)):
        columns = select(apart, range(target, apart.width, len(targets)))
        parts += _order_quantiles(columns, quantiles)
    return Predictor("regressor", {"response": concat(parts)})


def _quantiles(quantiles: Any, where: Where) -> tuple[float, ...]:
    """Return the quantiles that ``predict`` returns; none for the mean."""
    listed = quantiles if isinstance(quantiles, list) else [quantiles]
    if listed in ([None], ["mean"]):
        return ()
    numbers = [q for q in listed if type(q) in (int, float) and 0 <= q <= 1]
    if not numbers or len(numbers) != len(listed):
        raise where.damaged("its default_quantiles are not numbers from 0 to 1.")
    return tuple(map(float, numbers))


def _leaf_values(leaves: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the training value of each node, shape (nodes, targets); those of splits do not matter."""
    # Training rows count from 1. The library reads the last value for 0, too.
    columns = [values[leaves[:, target, 0] - 1] for target, values in enumerate(targets)]
    return np.stack(columns, axis=1)


def _weighted_mean(
    rows: TableRows, nodes: Sequence[np.ndarray], targets: np.ndarray, leaves: np.ndarray
) -> Node:
    """Return the mean of all training values in a row's leaves, each as often as leaves hold it."""
    count = len(targets)
    values = []
    for at, part in enumerate(nodes):
        index = leaves[at, : len(part)]
        held = index > 0
        totals = [
            np.where(held[:, target], values[index[:, target] - 1], 0.0).sum(axis=1)
            for target, values in enumerate(targets)
        ]
        values.append(np.concatenate([np.stack(totals, axis=1), held.sum(axis=2)], axis=1))
    sums = _forest(rows, nodes, values, np.zeros(len(nodes)), 2 * count, 1)
    return apply("divide", select(sums, range(count)), select(sums, range(count, 2 * count)))


def _forest(
    rows: TableRows,
    nodes: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    outputs: np.ndarray,
    width: int,
    divisor: float,
) -> Trees:
    ensemble = assemble(
        [tree_of(part, value) for part, value in zip(nodes, values, strict=True)],
        n_features=rows.width,
        compare_dtype="float32",
        tree_output=outputs,
        base_score=np.zeros(width),
        divisor=divisor,
    )
    return Trees(rows, ensemble)


def _order_quantiles(values: Node, quantiles: Sequence[float]) -> list[Node]:
    """Return quantiles of a row's values, as ``numpy.quantile`` interpolates them."""
    k = values.width
    # Without sorting: the number of values up to each value.
    up_to: Node = reduce("sum", apply("less_equal", Repeat(values, k, tiled=True), Repeat(values, k)), k)

    def ranked(rank: int) -> Node:
        enough = apply("greater_equal", up_to, float(rank + 1))
        return reduce("min", apply("where", enough, values, np.inf))

    results: list[Node] = []
    for quantile in quantiles:
        position = quantile * (k - 1)
        low = min(int(position), k - 1)
        part = position - low
        below, above = ranked(low), ranked(min(low + 1, k - 1))
        step = apply("subtract", above, below)
        if part < 0.5:
            results.append(apply("add", below, apply("multiply", step, part)))
        else:
            results.append(apply("subtract", above, apply("multiply", step, 1 - part)))
    return results
