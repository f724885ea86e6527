"""Importances of columns to models of LightGBM and XGBoost, as in ``feature_importances_``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hbtvm.frontends.lightgbm import estimator as lightgbm_estimator
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import fitted_booster
from hbtvm.frontends.transformers.where import Where
from hbtvm.frontends.xgboost import estimator as xgboost_estimator

_STATISTICS = {"gain": "loss_changes", "cover": "sum_hessian"}
"""XGBoost's types of importance, and where a document has them by nodes."""


def of_lightgbm(estimator: Record, width: int, where: Where) -> np.ndarray:
    """The importances to an estimator of LightGBM.

    `estimator`: the fitted estimator.
    `width`: columns that it reads.
    `where`: the place of what selects by it.
    Returns shape (width,): int32 for ``importance_type="split"``, float64 for ``"gain"``. Raises
    `UnsupportedModel` if the type of importance is not known. Raises `ValueError` if the model is damaged.
    """
    kind = estimator.get("importance_type", "split")
    if kind not in ("split", "gain"):
        raise _unknown(kind, estimator, where)
    result: np.ndarray = np.zeros(width)
    for tree in lightgbm_estimator.text_of(fitted_booster(estimator)).trees:
        gain = np.array(tree.get("split_gain", "").split(), np.float32).astype(np.float64)
        feature = np.array(tree.get("split_feature", "").split(), np.int64)
        _require_columns(feature, width)
        # LightGBM skips splits without gain, such as forced splits.
        positive = gain > 0
        np.add.at(result, feature[positive], gain[positive] if kind == "gain" else 1.0)
    return result.astype(np.int32) if kind == "split" else result


def of_xgboost(estimator: Record, width: int, where: Where) -> np.ndarray:
    """The importances to an estimator of XGBoost, which add up to 1.

    `estimator`, `width`, `where`: as for `of_lightgbm`.
    Returns float32, shape (width,). Raises `UnsupportedModel` if the type of importance is not known, or it
    has none by nodes (gblinear, vector leaves). Raises `ValueError`, `KeyError` if the model is damaged.
    """
    importance = estimator.get("importance_type", None) or "gain"
    name = importance.removeprefix("total_") if isinstance(importance, str) else ""
    if name not in (*_STATISTICS, "weight") or importance == "total_weight":
        raise _unknown(importance, estimator, where)
    booster = xgboost_estimator.document_of(fitted_booster(estimator))["learner"]["gradient_booster"]
    kind = booster["name"]
    if kind not in ("gbtree", "dart"):
        raise where.unsupported(f"selects by the importances of an XGBoost {kind!r:.40}; expected trees.")
    model = booster["gbtree"]["model"] if kind == "dart" and "gbtree" in booster else booster["model"]
    total, splits = np.zeros(width, np.float32), np.zeros(width, np.int64)
    for tree in model["trees"]:
        if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
            raise where.unsupported("selects by the importances of trees with vectors in their leaves.")
        nodes = np.fromiter(_splits(tree["left_children"], tree["right_children"]), np.int64)
        feature = np.array(tree["split_indices"], np.int64)[nodes]
        _require_columns(feature, width)
        np.add.at(splits, feature, 1)
        if name != "weight":
            statistic = np.array(tree[_STATISTICS[name]], np.float64).astype(np.float32)
            # One after the other in float32, as the library adds them up.
            np.add.at(total, feature, statistic[nodes])
    if name == "weight":
        total = splits.astype(np.float32)
    elif importance == name:  # the average by split
        total /= np.maximum(splits, 1).astype(np.float32)
    everything = total.sum()
    return total if everything == 0 else total / everything


def _splits(left: Any, right: Any) -> Iterator[int]:
    """The nodes that split, in the order in which XGBoost walks a tree: to the right first."""
    waiting, seen = [0], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if seen > len(left) or not 0 <= node < len(left):
            raise ValueError("a tree's nodes are not a tree")
        if left[node] != -1:
            yield node
            waiting += (left[node], right[node])


def _require_columns(feature: np.ndarray, width: int) -> None:
    if len(feature) and not 0 <= feature.min() <= feature.max() < width:
        raise ValueError(f"the model splits on columns beyond its {width}")


def _unknown(kind: Any, estimator: Record, where: Where) -> Exception:
    return where.unsupported(
        f"selects by importances of the type {kind!r:.40} of a {estimator.kind}, which is not supported."
    )


IMPORTANCES: Mapping[str, Callable[[Record, int, Where], np.ndarray]] = {
    "lightgbm": of_lightgbm,
    "xgboost": of_xgboost,
}
"""By library."""
