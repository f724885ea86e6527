"""scikit-learn's discriminant analyses, linear and quadratic."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import classes_of, floats, floats_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.formulas import softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce, select


def linear(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``LinearDiscriminantAnalysis``: sums, and their sigmoid or softmax."""
    labels = classes_of(record)
    count = 1 if len(labels) == 2 else len(labels)
    weight = floats(record, "coef_", where, count, len(table))
    sums: Node = Contract(TableRows(table), np.ascontiguousarray(weight.T)).checked()
    sums = apply("add", sums, floats(record, "intercept_", where, count))
    if count == 1:
        outputs = {
            "index": apply("greater", sums, 0.0),
            "proba": with_complement(apply("sigmoid", sums)),
            "decision": sums,
        }
    else:
        outputs = {"index": reduce("argmax", sums), "proba": softmax(sums), "decision": sums}
    return Predictor("classifier", outputs, (labels,))


def quadratic(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``QuadraticDiscriminantAnalysis``: a Gaussian density of each class."""
    labels = classes_of(record)
    count, width = len(labels), len(table)
    means = floats(record, "means_", where, count, width)
    priors = floats(record, "priors_", where, count)
    rotations = [
        floats_of(rotation, "rotations_", where, width, None) for rotation in record.sequence("rotations_")
    ]
    scalings = [floats_of(scaling, "scalings_", where, None) for scaling in record.sequence("scalings_")]
    if len(rotations) != count or len(scalings) != count:
        raise where.damaged("its rotations_ do not fit its classes.")
    if any(r.shape[1] != len(s) or not (s > 0).all() for r, s in zip(rotations, scalings, strict=True)):
        raise where.damaged("its scalings_ do not fit its rotations_.")
    most = max(map(len, scalings))
    weight = np.zeros((width, count, most))
    for k, (rotation, scaling) in enumerate(zip(rotations, scalings, strict=True)):
        weight[:, k, : len(scaling)] = rotation * scaling**-0.5
    # The library subtracts each class's mean; a common mean works as well, and shares the product.
    centre = means.mean(axis=0)
    projected = np.einsum("kf,fko->ko", means - centre, weight).ravel()
    product = Contract(apply("subtract", TableRows(table), centre), weight.reshape(width, -1)).checked()
    squares = reduce("sum", apply("square", apply("subtract", product, projected)), count)
    logs = np.array([np.log(scaling).sum() for scaling in scalings])
    with np.errstate(divide="ignore"):
        constant = np.log(priors) - 0.5 * logs
    scores: Node = apply("add", apply("multiply", squares, -0.5), constant)
    first_two = [select(scores, [i]) for i in range(min(count, 2))]
    decision = scores if count != 2 else apply("subtract", first_two[1], first_two[0])
    outputs = {"index": reduce("argmax", scores), "proba": softmax(scores), "decision": decision}
    return Predictor("classifier", outputs, (labels,))
