"""Importances of columns to a model, and the threshold of ``SelectFromModel``."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.arrays import field
from hbtvm.frontends.sklearn.common import nodes_of
from hbtvm.frontends.transformers.selectors import boosters
from hbtvm.frontends.transformers.where import Where

_TREES = ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor")
_FORESTS = (
    "RandomForestClassifier",
    "RandomForestRegressor",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
)
_BOOSTING = ("GradientBoostingClassifier", "GradientBoostingRegressor")


def scores(record: Record, estimator: Record, width: int, where: Where) -> np.ndarray:
    """Return the importance of each column.

    `record`: the ``SelectFromModel``.
    `estimator`: its fitted model.
    `width`: columns that it reads.
    Returns shape (width,), a type of floats. Raises `UnsupportedModel` if they are not an attribute of the
    model, and not known how to compute.
    """
    getter = record.get("importance_getter", "auto")
    if getter not in ("auto", "coef_", "feature_importances_"):
        raise where.unsupported("takes importances by a custom function or path, which is not supported.")
    if getter != "feature_importances_" and estimator.get("coef_", None) is not None:
        stored = estimator.array("coef_", "f")
    elif estimator.kind.startswith("HistGradientBoosting"):
        raise where.unsupported(
            f"selects by the importances of a {estimator.kind}, which has no feature_importances_; "
            "scikit-learn needs an importance_getter for it, and custom functions and paths are not "
            "supported."
        )
    elif getter != "coef_" and (estimator.library == "sklearn" or estimator.library in boosters.IMPORTANCES):
        stored = _of_trees(estimator, width, where)
    else:
        raise _unknown(estimator, where)
    if stored.shape[-1:] != (width,) or stored.ndim > 2:
        raise where.damaged(f"it has importances of shape {stored.shape} for {width} columns.")
    if stored.ndim == 1:
        importances: np.ndarray = np.abs(stored)
        return importances
    order = record.get("norm_order", 1)
    result: np.ndarray = np.linalg.norm(stored, axis=0, ord=float(order))
    return result


def _unknown(estimator: Record, where: Where) -> Exception:
    return where.unsupported(
        f"selects by the importances of a {estimator.kind}, which is not supported; supported are linear "
        "models and the trees of scikit-learn, LightGBM and XGBoost."
    )


def _of_trees(estimator: Record, width: int, where: Where) -> np.ndarray:
    if estimator.library in boosters.IMPORTANCES:
        return boosters.IMPORTANCES[estimator.library](estimator, width, where)
    if estimator.kind in _TREES:
        return _of_tree(estimator, width, True)
    if estimator.kind in _FORESTS:
        importances = [
            _of_tree(tree, width, True) for tree in estimator.records("estimators_") if _splits(tree)
        ]
    elif estimator.kind in _BOOSTING:
        importances = [
            _of_tree(tree, width, False) for tree in estimator.records("estimators_") if _splits(tree)
        ]
    else:
        raise _unknown(estimator, where)
    if not importances:
        return np.zeros(width)
    mean: np.ndarray = np.array(importances).mean(axis=0, dtype=np.float64)
    result: np.ndarray = mean / float(mean.sum())
    return result


def _splits(tree: Record) -> bool:
    return len(nodes_of(tree)) > 1


def _of_tree(tree: Record, width: int, normalize: bool) -> np.ndarray:
    """Return the decrease of impurity by the splits on each column, summed in the order of nodes."""
    nodes = nodes_of(tree)
    left, right = field(nodes, "left_child"), field(nodes, "right_child")
    split = np.flatnonzero(left >= 0)
    weight = field(nodes, "weighted_n_node_samples").astype(np.float64)
    share = weight * field(nodes, "impurity").astype(np.float64)
    result: np.ndarray = np.zeros(width)
    # One after the other, as the library adds them up.
    np.add.at(result, field(nodes, "feature")[split], share[split] - share[left[split]] - share[right[split]])
    result /= weight[0]
    total = float(result.sum())
    if normalize and total > 0:
        result /= total
    return result


def threshold(record: Record, estimator: Record, importances: np.ndarray, where: Where) -> float:
    """Return the importance below which columns are dropped.

    Raises `UnsupportedModel` if it is neither a number nor an expression that the library supports.
    """
    value: Any = record.get("threshold", None)
    if value is None:
        value = 1e-5 if _is_sparse_by_penalty(estimator) else "mean"
    if not isinstance(value, str):
        return float(value)
    factor, _, reference = value.rpartition("*")
    if reference.strip() not in ("mean", "median"):
        raise where.unsupported(f"has the threshold {value[:40]!r}, which is not supported.")
    # In the importances' type, which is float32 for XGBoost.
    middle = np.mean(importances) if reference.strip() == "mean" else np.median(importances)
    return float(middle if not factor else float(factor.strip()) * middle)


def _is_sparse_by_penalty(estimator: Record) -> bool:
    """Return whether the model's penalty makes unimportant coefficients zero."""
    if estimator.get("penalty", None) == "l1" or "Lasso" in estimator.kind:
        return True
    if estimator.kind in ("ElasticNet", "LogisticRegression"):
        ratio = estimator.get("l1_ratio", None)
    elif estimator.kind in ("ElasticNetCV", "LogisticRegressionCV"):
        ratio = estimator.get("l1_ratio_", None)
    else:
        return False
    if ratio is None or not isinstance(ratio, (int, float, np.number, np.ndarray)):
        return False
    return bool(np.all(np.isclose(ratio, 1.0)))
