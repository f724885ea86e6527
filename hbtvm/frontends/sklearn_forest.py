"""scikit-learn's single trees and averaging forests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.build import assemble
from hbtvm.frontends.sklearn_common import (
    accepts_missing,
    input_spec,
    labels_of,
    nodes_of,
    tree_of,
    values_of,
)
from hbtvm.pipeline.output import OutputSpec
from hbtvm.pipeline.pipeline import Pipeline


def read_tree(model: Any) -> Pipeline:
    """Read a ``DecisionTree...`` or ``ExtraTree...``."""
    return _read(model, [model])


def read_forest(model: Any) -> Pipeline:
    """Read a ``RandomForest...`` or ``ExtraTrees...``."""
    return _read(model, model.estimators_)


def _read(model: Any, trees: Sequence[Any]) -> Pipeline:
    output = _output(model)
    # Leaves hold class shares in one padded row for each target.
    widths = [len(labels) for labels in output.classes]
    parts = []
    for tree in trees:
        value = values_of(tree.tree_)
        if widths:
            value = np.concatenate([value[:, i, :width] for i, width in enumerate(widths)], axis=1)
        else:
            value = value[:, :, 0]
        parts.append((nodes_of(tree.tree_), value))
    ensemble = assemble(
        [tree_of(nodes, value) for nodes, value in parts],
        n_features=int(model.n_features_in_),
        compare_dtype="float32",
        tree_output=np.zeros(len(parts)),
        base_score=np.zeros(output.n_outputs),
        divisor=len(parts),
    )
    inputs = input_spec(model, allow_nan=accepts_missing(trees[0]), allow_inf=False)
    return Pipeline("scikit-learn", type(model).__name__, inputs, ensemble, output)


def _output(model: Any) -> OutputSpec:
    if not hasattr(model, "classes_"):
        return OutputSpec(kind="regressor", n_outputs=int(model.n_outputs_))
    targets = [model.classes_] if model.n_outputs_ == 1 else model.classes_
    classes = tuple(labels_of(labels) for labels in targets)
    return OutputSpec(
        kind="classifier",
        n_outputs=sum(len(labels) for labels in classes),
        outputs=("label", "proba"),
        classes=classes,
        label_rule="argmax",
    )
