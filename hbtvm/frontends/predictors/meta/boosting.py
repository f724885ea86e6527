"""``AdaBoostClassifier`` and ``AdaBoostRegressor``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.meta.members import members, output
from hbtvm.frontends.predictors.reading import floats
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.typed import accepting
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import join_trees, joined
from hbtvm.graph.networks.network import Trees
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node, constant
from hbtvm.operators.formulas import softmax, total, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import Repeat, reduce, select
from hbtvm.operators.tables import lookup

_FALLS_FOR_OTHERS = (1, 4)
"""The first release of scikit-learn in which a vote for a class counts against the others."""


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``AdaBoostClassifier``: weighted votes (SAMME), or sums of logarithms (SAMME.R, before 1.6)."""
    labels = labels_of(record.get("classes_"))
    estimators = members(record, accepting(table, nan=False, inf=False), where)
    if len(labels) == 1:
        certain = constant(1.0)
        return Predictor(
            "classifier", {"index": constant(0.0), "proba": certain, "decision": constant(0.0)}, (labels,)
        )
    weights = floats(record, "estimator_weights_", where, None)
    if len(weights) < len(estimators) or not weights.sum() > 0:
        raise where.damaged(f"it has {len(weights)} weights for {len(estimators)} estimators.")
    samme_r = record.get("algorithm", "SAMME") == "SAMME.R" and record.version() < (1, 6)
    scores = [_position(estimator, labels, where) for estimator in estimators]
    if samme_r:
        votes: Node = total([_samme_r(output(estimator, "proba", where), where) for estimator in estimators])
    else:
        against = -1.0 / (len(labels) - 1) if record.version() >= _FALLS_FOR_OTHERS else 0.0
        merged = _merged(estimators, scores, weights, against, labels)
        if merged is not None:
            return merged
        votes = total(
            [
                apply(
                    "where", apply("equal", score, np.arange(len(labels), dtype=np.float64)), w, against * w
                )
                for score, w in zip(scores, weights.tolist(), strict=False)
            ]
        )
    pred = apply("divide", votes, float(weights.sum()))
    if len(labels) == 2:
        share = apply("subtract", select(pred, [1]), select(pred, [0]))
        return Predictor("classifier", _outputs_of(share, share), (labels,))
    outputs = _outputs_of(pred, apply("divide", pred, float(len(labels) - 1)))
    return Predictor("classifier", outputs | {"index": reduce("argmax", pred)}, (labels,))


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``AdaBoostRegressor``: the weighted median of responses."""
    estimators = members(record, accepting(table, nan=False, inf=False), where)
    weights = floats(record, "estimator_weights_", where, None)
    if len(weights) < len(estimators):
        raise where.damaged(f"it has {len(weights)} weights for {len(estimators)} estimators.")
    responses = [output(estimator, "response", where) for estimator in estimators]
    if any(response.width != 1 for response in responses):
        raise where.unsupported("holds a regressor of several targets.")
    response = weighted_median(joined.side_by_side(responses), weights[: len(estimators)])
    return Predictor("regressor", {"response": response})


def weighted_median(values: Node, weights: np.ndarray) -> Node:
    """Return the smallest value such that the values up to it have at least half of the weight.

    Parameters
    ----------
    values
        Width k.
    weights
        float64, shape (k,).
    """
    k = values.width
    if k == 1:
        return values
    # Without sorting: the total weight up to each value.
    below = apply("less_equal", Repeat(values, k, tiled=True), Repeat(values, k))
    up_to = reduce("sum", apply("multiply", below, np.tile(weights, k)), k)
    enough = apply("greater_equal", up_to, 0.5 * float(np.cumsum(weights)[-1]))
    return reduce("min", apply("where", enough, values, np.inf))


def _position(predictor: Predictor, labels: np.ndarray, where: Where) -> Node:
    """Return the position of an estimator's label among all labels."""
    if len(predictor.classes) != 1:
        raise where.unsupported("holds an estimator that is not a classifier of one target.")
    known = labels.tolist()
    at = [known.index(label) if label in known else -1 for label in predictor.classes[0].tolist()]
    if -1 in at:
        raise where.damaged("an estimator has an unknown class.")
    index = predictor.outputs["index"]
    if at == list(range(len(at))):
        return index
    return lookup(index, [0], [np.array(at, np.float64)])


def _samme_r(proba: Node, where: Where) -> Node:
    least = float(np.finfo(np.float64).eps)
    power = apply("log", apply("maximum", proba, least))
    k = proba.width
    mean = apply("multiply", reduce("sum", power), 1.0 / k)
    return apply("multiply", apply("subtract", power, mean), float(k - 1))


def _merged(
    estimators: Sequence[Predictor],
    scores: Sequence[Node],
    weights: np.ndarray,
    against: float,
    labels: np.ndarray,
) -> Predictor | None:
    """Return all trees as a forest whose leaves hold weighted votes; None for other estimators."""
    count, votes = len(labels), []
    for estimator, weight in zip(estimators, weights.tolist(), strict=False):
        forest = estimator.outputs.get("proba")
        # A single tree's label is its leaf's label; that of several trees is not.
        if not isinstance(forest, Trees) or forest.ensemble.n_trees != 1 or forest.width != count:
            return None
        if (
            len(estimator.classes[0]) != count
            or forest.ensemble.value_width != count
            or forest.ensemble.base_score.any()
        ):
            return None
        chosen = forest.ensemble.value.argmax(axis=1)
        vote = np.where(np.arange(count) == chosen[:, None], weight, against * weight)
        if count == 2:
            # The second class's vote minus the first's.
            votes.append(join_trees.with_values(forest, vote[:, 1:] - vote[:, :1], 1.0))
        else:
            votes.append(join_trees.with_values(forest, vote / (count - 1), 1.0))
    summed = join_trees.mean(votes)
    if summed is None:
        return None
    scaled = summed.on_ensemble(replace(summed.ensemble, divisor=float(weights.sum())))
    decision = scaled if count == 2 else apply("multiply", scaled, float(count - 1))
    return Predictor("classifier", _outputs_of(decision, scaled), (labels,), trees=scaled)


def _outputs_of(decision: Node, share: Node) -> dict[str, Node]:
    """Return the outputs of a decision function; `share` is it, divided by the number of classes minus 1."""
    if share.width == 1:
        index: Node = apply("greater", decision, 0.0)
        return {"index": index, "proba": with_complement(apply("sigmoid", share)), "decision": decision}
    return {"index": reduce("argmax", share), "proba": softmax(share), "decision": decision}
