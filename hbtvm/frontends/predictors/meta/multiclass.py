"""Several classes by binary estimators: one-vs-rest, one-vs-one, output codes."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.meta.members import (
    members,
    positive,
    positive_threshold,
    prediction,
    second,
)
from hbtvm.frontends.predictors.reading import floats
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import joined
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node, constant
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce, select


def constant_predictor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``_ConstantPredictor``, which replaces an estimator of a class that all rows have, or none."""
    value = floats(record, "y_", where).reshape(-1)
    if len(value) != 1:
        raise where.damaged("it predicts several numbers.")
    probability = constant(value)
    outputs: dict[str, Node] = {
        "index": probability,
        "proba": with_complement(probability),
        "decision": probability,
    }
    return Predictor("classifier", outputs, (np.arange(2),))


def one_vs_rest(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``OneVsRestClassifier``: an estimator for each class, or for each of several labels."""
    estimators = members(record, table, where)
    encoder = record.record("label_binarizer_")
    labels = labels_of(encoder.get("classes_"))
    kind = encoder.get("y_type_", "multiclass")
    scores = joined.side_by_side([positive(estimator, where) for estimator in estimators])
    if scores.width != len(estimators):
        raise where.unsupported("holds an estimator with several scores.")
    several = isinstance(kind, str) and kind.startswith("multilabel")
    if not several and len(estimators) != (len(labels) if len(labels) > 2 else 1):
        raise where.damaged(f"it has {len(estimators)} estimators for {len(labels)} classes.")
    if several and encoder.get("sparse_input_", False):
        raise where.unsupported("was trained on sparse labels, which is not supported.")
    above: Node = apply("greater", scores, positive_threshold(estimators[0]))
    index = above if several or len(estimators) == 1 else reduce("argmax", scores)
    outputs: dict[str, Node] = {"index": index}
    if all("proba" in estimator.outputs for estimator in estimators):
        share: Node = joined.side_by_side([second(estimator, where) for estimator in estimators])
        if len(estimators) == 1:
            share = with_complement(share)
        if not several:
            whole = reduce("sum", share)
            share = apply("where", whole, apply("divide", share, whole), share)
        outputs["proba"] = share
    if all("decision" in estimator.outputs for estimator in estimators):
        outputs["decision"] = joined.side_by_side([estimator.outputs["decision"] for estimator in estimators])
    if several:
        return Predictor("classifier", outputs, keeps_axis=True, label_dtype="int64")
    return Predictor("classifier", outputs, (labels,))


def one_vs_one(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``OneVsOneClassifier``: votes of estimators of pairs of classes; scores break ties."""
    labels = labels_of(record.get("classes_"))
    pairs = list(combinations(range(len(labels)), 2))
    records = record.records("estimators_")
    if len(records) != len(pairs):
        raise where.damaged(f"it has {len(records)} estimators for {len(labels)} classes.")
    chosen = record.get("pairwise_indices_", None)
    if chosen is not None:
        raise where.unsupported("holds estimators of precomputed kernels, which is not supported.")
    estimators = [read_predictor(estimator, table, where.child(i)) for i, estimator in enumerate(records)]
    wins = joined.side_by_side([prediction(estimator, where) for estimator in estimators])
    scores = joined.side_by_side([positive(estimator, where) for estimator in estimators])
    if wins.width != len(pairs) or scores.width != len(pairs):
        raise where.unsupported("holds an estimator with several scores.")
    decision = votes_of_pairs(wins, scores, len(labels))
    if len(labels) == 2:
        decision = select(decision, [1])
        index: Node = apply("greater", decision, positive_threshold(estimators[0]))
    else:
        index = reduce("argmax", decision)
    return Predictor("classifier", {"index": index, "decision": decision}, (labels,))


def votes_of_pairs(second_wins: Node, scores: Node, n_classes: int) -> Node:
    """Return the votes for each class, and less than half a vote by the sum of its scores.

    `second_wins`: for each pair of classes in lexical order, 1 if the second is preferred, else 0.
    `scores`: each pair's score of the second class.
    """
    pairs = list(combinations(range(n_classes), 2))
    first, second_ = np.zeros((len(pairs), n_classes)), np.zeros((len(pairs), n_classes))
    for at, (i, j) in enumerate(pairs):
        first[at, i] = second_[at, j] = 1.0
    # A vote for the first class is 1 minus the vote for the second.
    votes = apply("add", Contract(second_wins, second_ - first), first.sum(axis=0))
    sums = Contract(scores, second_ - first)
    bounded = apply("divide", sums, apply("multiply", apply("add", apply("absolute", sums), 1.0), 3.0))
    return apply("add", votes, bounded)


def output_code(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``OutputCodeClassifier``: the class whose code is nearest to the estimators' scores."""
    estimators = members(record, table, where)
    labels = labels_of(record.get("classes_"))
    codes = floats(record, "code_book_", where, len(labels), len(estimators))
    scores = joined.side_by_side([positive(estimator, where) for estimator in estimators])
    index = reduce("argmin", Distance(scores, codes).checked())
    return Predictor("classifier", {"index": index}, (labels,))
