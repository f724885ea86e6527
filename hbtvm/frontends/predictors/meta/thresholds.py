"""``FixedThresholdClassifier``, ``TunedThresholdClassifierCV``: classifiers with other thresholds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.predictors.meta.members import output, single_target
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.values import scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import select

_METHODS = ("predict_proba", "decision_function")

_OF_LABEL_ONE = ("f1_score", "fbeta_score", "precision_score", "recall_score", "jaccard_score")
"""Scores whose default ``pos_label`` is 1; the default of others is the second label."""


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``FixedThresholdClassifier`` or ``TunedThresholdClassifierCV``."""
    inner = record.record("estimator_" if "estimator_" in record else "estimator")
    predictor = read_predictor(inner, table, where.child("estimator_"))
    labels = single_target(predictor, where)
    if len(labels) != 2:
        raise where.damaged(f"its estimator has {len(labels)} classes.")
    tuned = record.kind == "TunedThresholdClassifierCV"
    label = _pos_label(record, where) if tuned else record.get("pos_label", None)
    at = 1 if label is None else _position(labels, scalar(label, f"the pos_label of {where.step}"), where)
    method = _method(record, predictor, where)
    score: Node
    if method == "predict_proba":
        score = select(output(predictor, "proba", where), [at])
    else:
        score = output(predictor, "decision", where)
        # For the first class, the library negates the decision.
        score = apply("negative", score) if at == 0 else score
    if tuned:
        threshold = record.number("best_threshold_")
    elif isinstance(record.get("threshold", "auto"), str):
        threshold = 0.5 if method == "predict_proba" else 0.0
    else:
        threshold = record.number("threshold")
    above = apply("greater_equal", score, threshold)
    index = above if at == 1 else apply("subtract", 1.0, above)
    return replace(predictor, outputs={**predictor.outputs, "index": index}, trees=None)


def _method(record: Record, predictor: Predictor, where: Where) -> str:
    method = record.get("response_method", "auto")
    if method == "auto":
        return "predict_proba" if "proba" in predictor.outputs else "decision_function"
    if not isinstance(method, str) or method not in _METHODS:
        raise where.damaged("its response_method is not a known method.")
    return method


def _pos_label(record: Record, where: Where) -> object:
    """Return the label that the score was tuned for; None for the second class."""
    scorer = record.get("_curve_scorer", None)
    if not isinstance(scorer, Record):
        raise where.damaged("it has no scorer.")
    arguments = scorer.get("_kwargs", None) or {}
    if not isinstance(arguments, dict):
        raise where.damaged("its scorer has no arguments.")
    function = scorer.get("_score_func", None)
    by_default = 1 if isinstance(function, Global) and function.name in _OF_LABEL_ONE else None
    return arguments.get("pos_label", by_default)


def _position(labels: np.ndarray, label: object, where: Where) -> int:
    known = labels.tolist()
    if label not in known:
        raise where.damaged("its pos_label is not one of its labels.")
    return int(known.index(label))
