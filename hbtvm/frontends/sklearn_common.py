"""What scikit-learn's tree estimators share: Cython trees, labels, input checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import Tree
from hbtvm.pipeline.pipeline import InputSpec
from hbtvm.pipeline.rounding import float32_at_most


def tree_of(nodes: np.ndarray, value: np.ndarray, columns: np.ndarray | None = None) -> Tree:
    """One Cython tree; it compares float32 values with float64 thresholds.

    Parameters
    ----------
    nodes
        Structured array, shape (M,), as in the tree's state (`nodes_of`).
    value
        float64, shape (M, V).
    columns
        The model's column of each of the tree's columns, where the tree saw only some.
    """
    feature = nodes["feature"].astype(np.int64)
    if columns is not None:
        feature = columns[np.maximum(feature, 0)]
    return Tree(
        feature=feature,
        threshold=float32_at_most(nodes["threshold"]).astype(np.float64),
        left=nodes["left_child"].astype(np.int64),
        right=nodes["right_child"].astype(np.int64),
        default_left=nodes["missing_go_to_left"].astype(bool),
        value=value,
    )


def nodes_of(tree: Any) -> np.ndarray:
    """The structured node array of an estimator's ``tree_``, shape (M,)."""
    nodes: np.ndarray = tree.__getstate__()["nodes"]
    return nodes


def values_of(tree: Any) -> np.ndarray:
    """Node values of an estimator's ``tree_``, float64, shape (M, targets, most classes)."""
    values: np.ndarray = tree.__getstate__()["values"]
    return values


def labels_of(classes: Any) -> np.ndarray:
    """Class labels as an array of strings, numbers or bools.

    Raises
    ------
    UnsupportedModel
        If a label is anything else.
    """
    labels = np.asarray(classes)
    for label in labels.tolist():
        if not isinstance(label, (str, int, float, bool)):
            raise UnsupportedModel(
                f"a class label is a {type(label).__name__}; supported are strings, numbers and bools."
            )
    return labels


def input_spec(model: Any, *, allow_nan: bool, allow_inf: bool) -> InputSpec:
    """Columns and names of a fitted estimator."""
    return InputSpec(
        n_features=int(model.n_features_in_),
        feature_names=feature_names(model),
        allow_nan=allow_nan,
        allow_inf=allow_inf,
    )


def feature_names(model: Any) -> tuple[str, ...] | None:
    """The column names that the estimator was fitted with, if any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)


def accepts_missing(tree: Any) -> bool:
    """Whether a tree estimator's ``predict`` lets NaN pass."""
    return bool(tree._support_missing_values(np.zeros((1, 1), np.float32)))
