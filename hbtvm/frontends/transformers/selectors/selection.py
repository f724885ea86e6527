"""Selectors: their columns follow from their fitted attributes, as in ``get_support``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import accepts_missing, one_of
from hbtvm.frontends.transformers.dispatch import apply, names_in, predicts
from hbtvm.frontends.transformers.selectors import importances
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table

Mask = np.ndarray  # bool, shape (columns,): which are kept


def variance_threshold(record: Record, table: Table, where: Where) -> Table:
    """``VarianceThreshold``."""
    mask = record.array("variances_", "f", 1) > record.number("threshold", 0.0)
    return _kept(record, table, mask, where, nan=True)


def univariate(record: Record, table: Table, where: Where) -> Table:
    """``SelectKBest``, ``SelectPercentile``, ``SelectFpr``, ``SelectFdr``, ``SelectFwe``."""
    parameter, support = _UNIVARIATE[record.kind]
    return _kept(record, table, support(record, _parameter(record, parameter, where)), where, nan=False)


def generic_univariate(record: Record, table: Table, where: Where) -> Table:
    """``GenericUnivariateSelect``: one of the others, by its mode."""
    mode = one_of(record, "mode", tuple(_MODES))
    _, support = _UNIVARIATE[_MODES[mode]]
    return _kept(record, table, support(record, _parameter(record, "param", where)), where, nan=False)


def by_support(record: Record, table: Table, where: Where) -> Table:
    """``RFE``, ``RFECV``, ``SequentialFeatureSelector``, which store their columns."""
    inner = record.get("estimator_", None)
    if not isinstance(inner, Record):
        inner = record.record("estimator")
    return _kept(record, table, record.array("support_", "b", 1), where, nan=takes_nan(inner))


def last_eliminated(
    record: Record, table: Table, where: Where, predicting: bool
) -> tuple[Record, Table, Where] | None:
    """Return the estimator of an ``RFE`` or ``RFECV`` that predicts, with the kept columns."""
    inner = record.get("estimator_", None)
    if not predicting or not isinstance(inner, Record) or not predicts(where.how(inner)):
        return None
    return inner, apply(record, table, where), where.child("estimator_")


def from_model(record: Record, table: Table, where: Where) -> Table:
    """``SelectFromModel``: columns whose importance to a model is at least a threshold."""
    inner = record.get("estimator_", None)
    if not isinstance(inner, Record):
        inner = record.record("estimator")
    while inner.kind == "FrozenEstimator":
        inner = inner.record("estimator")
    scores = importances.scores(record, inner, len(table), where)
    threshold = importances.threshold(record, inner, scores, where)
    mask = np.ones(len(scores), bool)
    if record.get("max_features", None) is not None:
        most = record.get("max_features_", record.get("max_features"))
        if isinstance(most, bool) or not isinstance(most, (int, np.integer)):
            raise where.damaged("max_features is not a number.")
        mask[np.argsort(-scores, kind="stable")[int(most) :]] = False
    mask[scores < threshold] = False
    return _kept(record, table, mask, where, nan=takes_nan(inner))


def takes_nan(estimator: Record) -> bool:
    """Whether the library lets NaN pass to an estimator: a selector by its importances then does, too."""
    if estimator.library in ("xgboost", "lightgbm") or estimator.kind.startswith("HistGradientBoosting"):
        return True
    if estimator.kind.startswith(("DecisionTree", "ExtraTreeC", "ExtraTreeR")):
        return accepts_missing(estimator, estimator.version())
    if estimator.kind.startswith(("RandomForest", "ExtraTreesC", "ExtraTreesR")):
        trees = estimator.records("estimators_")
        return (
            bool(trees) and estimator.version() >= (1, 4) and accepts_missing(trees[0], estimator.version())
        )
    return False


def _kept(record: Record, table: Table, mask: Mask, where: Where, nan: bool) -> Table:
    if len(mask) != len(table):
        raise where.damaged(f"it selects among {len(mask)} columns, but gets {len(table)}.")
    # Selectors that let NaN pass check nothing. What is kept has the type that all columns have together.
    checked = accepting(unified(table), nan=nan, inf=nan)
    named = Table(checked.columns, checked.sparse, names_in(record, table))
    return named.select(np.flatnonzero(mask).tolist())


def _parameter(record: Record, name: str, where: Where) -> Any:
    value = scalar(record.get(name), f"the {name} of {where.step}")
    if value != "all" and (isinstance(value, (str, bool)) or value is None):
        raise where.damaged(f"its {name} is not a number.")
    return value


def _scores(record: Record) -> np.ndarray:
    """Return scores, with the smallest number in place of NaN."""
    scores = record.array("scores_", "biuf", 1)
    scores = scores.astype(scores.dtype if scores.dtype.kind == "f" else np.float64)
    scores[np.isnan(scores)] = np.finfo(scores.dtype).min
    return scores


def _k_best(record: Record, k: Any) -> Mask:
    scores = _scores(record)
    if k == "all":
        return np.ones(len(scores), bool)
    mask = np.zeros(len(scores), bool)
    if k:
        # Among equal scores, the last columns are kept.
        mask[np.argsort(scores, kind="stable")[-int(k) :]] = True
    return mask


def _percentile(record: Record, percentile: Any) -> Mask:
    scores = _scores(record)
    if percentile in (0, 100):
        return np.full(len(scores), percentile == 100)
    threshold = np.percentile(scores, 100 - percentile)
    mask: Mask = scores > threshold
    ties = np.flatnonzero(scores == threshold)
    most = int(len(scores) * percentile / 100)
    # Among scores at the threshold, the first columns are kept; the bound may be negative, as in the library.
    mask[ties[: most - mask.sum()]] = True
    return mask


def _fpr(record: Record, alpha: Any) -> Mask:
    mask: Mask = _p_values(record) < alpha
    return mask


def _fdr(record: Record, alpha: Any) -> Mask:
    values = _p_values(record)
    ordered = np.sort(values)
    below = ordered[ordered <= float(alpha) / len(values) * np.arange(1, len(values) + 1)]
    mask: Mask = values <= below.max() if len(below) else np.zeros(len(values), bool)
    return mask


def _fwe(record: Record, alpha: Any) -> Mask:
    values = _p_values(record)
    mask: Mask = values < alpha / len(values)
    return mask


def _p_values(record: Record) -> np.ndarray:
    return record.array("pvalues_", "f", 1)


_UNIVARIATE: dict[str, tuple[str, Callable[[Record, Any], Mask]]] = {
    "SelectKBest": ("k", _k_best),
    "SelectPercentile": ("percentile", _percentile),
    "SelectFpr": ("alpha", _fpr),
    "SelectFdr": ("alpha", _fdr),
    "SelectFwe": ("alpha", _fwe),
}
"""By class: its parameter and its rule."""

_MODES = {
    "percentile": "SelectPercentile",
    "k_best": "SelectKBest",
    "fpr": "SelectFpr",
    "fdr": "SelectFdr",
    "fwe": "SelectFwe",
}
