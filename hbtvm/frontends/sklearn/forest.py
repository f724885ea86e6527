"""scikit-learn's single trees and averaging forests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import (
    accepts_missing,
    column_count,
    input_spec,
    labels_of,
    nodes_of,
    require_own_arrays,
    tree_of,
    values_of,
)
from hbtvm.graph.graph import Graph
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Input
from hbtvm.operators.shapes import concat, reduce, select

_ROUNDING = 1e-6
"""Bound of the rounding error of a sum of shares."""


def read_tree(model: Record) -> Graph:
    """Read a ``DecisionTree...`` or ``ExtraTree...``."""
    return _read(model, [model], accepts_missing(model, model.version()))


def read_forest(model: Record) -> Graph:
    """Read a ``RandomForest...`` or ``ExtraTrees...``."""
    trees = model.records("estimators_")
    # Forests accept missing values one release later than trees.
    version = model.version()
    return _read(model, trees, bool(trees) and version >= (1, 4) and accepts_missing(trees[0], version))


def leaf_numbers(model: Record) -> tuple[TreeEnsemble, bool]:
    """Read a forest with an output for each tree: the number of the row's leaf.

    Returns
    -------
    The trees, and whether they take missing values.
    """
    trees = model.records("estimators_")
    parts = [nodes_of(tree) for tree in trees]
    require_own_arrays(parts)
    ensemble = assemble(
        [tree_of(nodes, np.arange(len(nodes), dtype=np.float64)[:, None]) for nodes in parts],
        n_features=column_count(model),
        compare_dtype="float32",
        tree_output=np.arange(len(parts)),
        base_score=np.zeros(len(parts)),
    )
    return ensemble, accepts_missing(trees[0], model.version())


def _read(model: Record, trees: Sequence[Record], allow_nan: bool) -> Graph:
    output = _output(model)
    # Leaves hold class shares in one padded row for each target.
    widths = [len(labels) for labels in output.classes]
    parts = []
    require_own_arrays(array for tree in trees for array in (nodes_of(tree), values_of(tree)))
    for tree in trees:
        nodes, value = nodes_of(tree), values_of(tree)
        expected = (len(widths), max(widths)) if widths else (output.n_outputs, 1)
        if value.shape[1:] != expected:
            raise ModelError(f"the {model.kind} is damaged: a leaf has {value.shape[1:]} values.")
        if widths:
            columns = [value[:, i, :width] for i, width in enumerate(widths)]
            value = np.concatenate([_shares(column, model) for column in columns], axis=1)
        else:
            value = value[:, :, 0]
        parts.append((nodes, value))
    ensemble = assemble(
        [tree_of(nodes, value) for nodes, value in parts],
        n_features=column_count(model),
        compare_dtype="float32",
        tree_output=np.zeros(len(parts)),
        base_score=np.zeros(output.n_outputs if parts else 0),
        divisor=len(parts),
    )
    inputs = input_spec(model, allow_nan=allow_nan, allow_inf=False)
    return Graph("scikit-learn", model.kind, inputs, ensemble, output)


def _shares(values: np.ndarray, model: Record) -> np.ndarray:
    """Class shares of each node; scikit-learn before 1.4 kept weights, and divided when it predicted."""
    total = values.sum(axis=1)[:, np.newaxis]
    # A later release may have saved the trees of an older release again.
    if model.version() >= (1, 4) and np.all(np.abs(total - 1.0) < _ROUNDING):
        return values
    total[total == 0.0] = 1.0
    shares: np.ndarray = values / total
    return shares


def _output(model: Record) -> OutputSpec:
    outputs = model.whole("n_outputs_", 1)
    if "classes_" not in model:
        return OutputSpec("regressor", outputs, {"response": Input(outputs)})
    targets = [model.get("classes_")] if outputs == 1 else model.sequence("classes_")
    if len(targets) != outputs:
        raise ModelError(f"the {model.kind} is damaged: it has labels of {len(targets)} targets.")
    classes = tuple(labels_of(labels) for labels in targets)
    counts = [len(labels) for labels in classes]
    shares = Input(sum(counts))
    runs = itertools.pairwise(itertools.accumulate(counts, initial=0))
    index = concat([reduce("argmax", select(shares, range(*run))) for run in runs])
    return OutputSpec("classifier", shares.width, {"index": index, "proba": shares}, classes)
