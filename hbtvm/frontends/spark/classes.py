"""Outputs of Spark's classifiers: labels, probabilities and ``rawPrediction``."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.spark.cells import parameter
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import Linear
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Node
from hbtvm.operators.formulas import with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce


def labels_of(record: Record, count: int) -> np.ndarray:
    """Return the labels: the strings of an ``IndexToString`` behind the model, else 0.0, 1.0, ..."""
    labels = record.get("labels", None)
    if isinstance(labels, list):
        return np.array(labels, object)
    return np.arange(count, dtype=np.float64)


def thresholds_of(record: Record, count: int, where: Where) -> np.ndarray | None:
    """Return ``thresholds``, float64, shape (count,); None if they are not set."""
    stored = record.get("thresholds", None)
    if stored is None:
        return None
    values = np.array([parameter(value, "thresholds", where) for value in record.sequence("thresholds")])
    if len(values) != count or not (values >= 0).all():
        raise where.damaged(f"it has {len(values)} thresholds of {count} classes.")
    return values


def likeliest(record: Record, raw: Node, proba: Node, where: Where) -> dict[str, Node]:
    """Return the outputs of a classifier with a raw score and a probability of each class."""
    thresholds = thresholds_of(record, raw.width, where)
    index: Node = reduce("argmax", raw)
    if thresholds is not None:
        scaled = apply("divide", proba, thresholds)
        # A class whose threshold and probability are 0 is never predicted.
        index = reduce("argmax", apply("where", apply("isnan", scaled), -1.0, scaled))
    return {"index": index, "proba": proba, "decision": raw}


def binary(record: Record, margin: Node, probability: Node | None, where: Where) -> dict[str, Node]:
    """Return the outputs of a model of two classes whose margin is compared with a threshold.

    `probability`: of class 1; None if there is none.
    """
    raw = concat([apply("negative", margin), margin])
    if probability is None:
        index = apply("greater", margin, parameter(record.get("threshold", 0.0), "threshold", where))
        return {"index": index, "decision": raw}
    thresholds = thresholds_of(record, 2, where)
    if thresholds is None:
        least = parameter(record.get("threshold", 0.5), "threshold", where)
    else:
        with np.errstate(all="ignore"):
            least = float(1.0 / (1.0 + thresholds[0] / thresholds[1]))
    if not 0 <= least <= 1:
        raise where.damaged(f"its threshold is {least}.")
    cut = -math.inf if least == 0 else math.inf if least == 1 else math.log(least / (1.0 - least))
    return {
        "index": apply("greater", margin, cut),
        "proba": with_complement(probability),
        "decision": raw,
    }


def graph(
    record: Record, anchor: Linear | TreeEnsemble, output: OutputSpec, nan: bool = True, inf: bool = True
) -> Graph:
    """Return the graph of a model by itself.

    `nan`, `inf`: whether NaN and infinities are accepted.
    """
    if isinstance(anchor, TreeEnsemble):
        anchor = replace(anchor, precise=True)
    return Graph(
        record.library,
        record.kind,
        InputSpec(anchor.n_features, allow_nan=nan, allow_inf=inf),
        anchor,
        output,
    )
