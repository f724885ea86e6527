"""scikit-learn's support vector machines of libsvm: classifiers, regressors, and the one-class machine."""

from __future__ import annotations

import itertools
from typing import Literal, cast

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, classes_of
from hbtvm.frontends.transformers.projections.matrices import finite
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.formulas import kernel
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce

_KERNELS = ("linear", "poly", "rbf", "sigmoid")
_LEAST_PROBABILITY = 1e-7  # libsvm keeps probabilities of pairs this far from 0 and 1


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``SVC`` or ``NuSVC``: a machine for each pair of classes."""
    labels = classes_of(record)
    count = len(labels)
    if count < 2:
        raise where.damaged("it has a single class.")
    pairs = _decisions(record, table, where, count)
    own_shape = record.get("decision_function_shape", "ovr")
    if own_shape not in ("ovr", "ovo"):
        raise where.unsupported("has another decision_function_shape than 'ovr' and 'ovo'.")
    ties = bool(record.get("break_ties", False))
    if ties and own_shape == "ovo":
        raise where.unsupported("has break_ties with 'ovo', for which scikit-learn does not predict.")
    votes = _votes(apply("greater", pairs, 0.0), count)
    index: Node = reduce("argmax", votes)
    if count == 2:
        # Negative sums stand for the second class.
        decision: Node = apply("negative", pairs)
    elif own_shape == "ovo":
        decision = pairs
    else:
        # Here a sum of 0 stands for the first of a pair, but in `votes` for the second.
        inclusive_votes = _votes(apply("greater_equal", pairs, 0.0), count)
        sums = Contract(pairs, _signs(count))
        bounded = apply("divide", sums, apply("multiply", apply("add", apply("absolute", sums), 1.0), 3.0))
        decision = apply("add", inclusive_votes, bounded)
        index = reduce("argmax", decision) if ties else index
    outputs = {"index": index}
    if record.get("probability", False) not in (False, "deprecated"):
        outputs["proba"] = _probabilities(record, pairs, count, where)
    return Predictor("classifier", {**outputs, "decision": decision}, (labels,))


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``SVR`` or ``NuSVR``."""
    return Predictor("regressor", {"response": _decisions(record, table, where, 2)})


def one_class(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``OneClassSVM``: rows with a positive sum are inliers."""
    decision = _decisions(record, table, where, 2)
    offset = float(finite(record, "offset_", where, 1)[0])
    outputs = {
        "index": apply("where", apply("greater", decision, 0.0), 1.0, -1.0),
        "decision": decision,
        "score": apply("add", decision, offset),
    }
    return Predictor("anomaly", outputs, label_dtype="int64")


def linear_one_class(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``SGDOneClassSVM``: rows with a sum of at least 0 are inliers."""
    weight = record.array("coef_", "f")
    if weight.size != len(table) or not np.isfinite(weight).all():
        raise where.damaged(f"its coef_ has the shape {weight.shape}, or a number that is not finite.")
    offset = float(finite(record, "offset_", where, 1)[0])
    score = Contract(TableRows(table), weight.astype(np.float64).reshape(-1, 1)).checked()
    decision = apply("subtract", score, offset)
    outputs = {
        "index": apply("where", apply("greater_equal", decision, 0.0), 1.0, -1.0),
        "decision": decision,
        "score": score,
    }
    return Predictor("anomaly", outputs, label_dtype="int32")


def _decisions(record: Record, table: Table, where: Where, count: int) -> Node:
    """Return libsvm's sums for each pair of classes."""
    name = cast(Literal["linear", "poly", "rbf", "sigmoid"], choice(record, "kernel", where, _KERNELS))
    vectors = finite(record, "support_vectors_", where, None, len(table))
    # Before scikit-learn 0.22 the coefficients were public alone, and with the same sign.
    dual = finite(
        record, "_dual_coef_" if "_dual_coef_" in record else "dual_coef_", where, count - 1, len(vectors)
    )
    pairs = count * (count - 1) // 2
    intercept = finite(record, "_intercept_" if "_intercept_" in record else "intercept_", where, pairs)
    values = kernel(
        TableRows(table), vectors, name, _gamma(record), record.number("coef0"), record.number("degree")
    )
    weight = dual.T if count == 2 else _pair_weights(record, dual, count, where)
    return apply("add", Contract(values, np.ascontiguousarray(weight)).checked(), intercept)


def _gamma(record: Record) -> float:
    return record.number("_gamma") if "_gamma" in record else record.number("gamma")


def _pair_weights(record: Record, dual: np.ndarray, count: int, where: Where) -> np.ndarray:
    """Coefficients of each pair's machine, float64, shape (support vectors, pairs).

    libsvm stores for a vector of class i the coefficients against all other classes, in order.
    """
    sizes = record.array("_n_support" if "_n_support" in record else "n_support_", "iu", 1).tolist()
    if len(sizes) != count or any(size < 0 for size in sizes) or sum(sizes) != dual.shape[1]:
        raise where.damaged(
            f"it has {sizes!r:.60} support vectors of its classes, and {dual.shape[1]} in all."
        )
    ends = np.cumsum([0, *sizes])
    spans = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
    weight = np.zeros((dual.shape[1], count * (count - 1) // 2))
    for pair, (i, j) in enumerate(_pairs(count)):
        weight[spans[i], pair] = dual[j - 1, spans[i]]
        weight[spans[j], pair] = dual[i, spans[j]]
    return weight


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _signs(count: int) -> np.ndarray:
    """Return 1 for the first of a pair, -1 for the second: float64, shape (pairs, classes)."""
    signs = np.zeros((count * (count - 1) // 2, count))
    for pair, (i, j) in enumerate(_pairs(count)):
        signs[pair, i], signs[pair, j] = 1.0, -1.0
    return signs


def _votes(firsts: Node, count: int) -> Node:
    """Return the votes for each class; `firsts` is 1 if a pair's first class wins, else 0."""
    # The product subtracts a vote from each pair's second class unless it wins: add these back.
    return apply("add", Contract(firsts, _signs(count)), np.arange(count, dtype=np.float64))


def _probabilities(record: Record, pairs: Node, count: int, where: Where) -> Node:
    """Return Platt's probabilities of pairs, coupled."""
    slope, offset = (
        # Before scikit-learn 0.24 these were public.
        finite(record, f"_{name}" if f"_{name}" in record else f"{name}_", where, pairs.width)
        for name in ("probA", "probB")
    )
    shares = apply("sigmoid", apply("negative", apply("add", apply("multiply", pairs, slope), offset)))
    kept = apply("minimum", apply("maximum", shares, _LEAST_PROBABILITY), 1.0 - _LEAST_PROBABILITY)
    return Coupling(kept, count).checked()
