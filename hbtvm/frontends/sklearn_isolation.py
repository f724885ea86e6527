"""scikit-learn's IsolationForest."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.build import assemble
from hbtvm.frontends.sklearn_common import accepts_missing, input_spec, nodes_of, tree_of
from hbtvm.pipeline.output import OutputSpec
from hbtvm.pipeline.pipeline import Pipeline


def read(model: Any) -> Pipeline:
    """Read an ``IsolationForest``: its raw score is the summed depth of a row's leaves."""
    from sklearn.ensemble._iforest import _average_path_length

    trees = []
    for estimator, columns in zip(model.estimators_, model.estimators_features_, strict=True):
        tree = estimator.tree_
        # A leaf of several samples stands for the tree that would have told them apart.
        depth = tree.compute_node_depths() + _average_path_length(tree.n_node_samples) - 1.0
        trees.append(tree_of(nodes_of(tree), depth[:, None], np.asarray(columns)))
    ensemble = assemble(
        trees,
        n_features=int(model.n_features_in_),
        compare_dtype="float32",
        tree_output=np.zeros(len(trees)),
        base_score=np.zeros(1),
    )
    output = OutputSpec(
        kind="anomaly",
        n_outputs=1,
        transform="isolation",
        scale=float(len(trees) * _average_path_length([model._max_samples])[0]),
        outputs=("label", "decision", "score"),
        label_rule="side",
        offset=float(model.offset_),
    )
    inputs = input_spec(model, allow_nan=accepts_missing(model.estimators_[0]), allow_inf=True)
    return Pipeline("scikit-learn", "IsolationForest", inputs, ensemble, output)
