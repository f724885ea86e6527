"""One estimator for each target: ``MultiOutputClassifier``, ``MultiOutputRegressor`` and chains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.meta.members import members, output, prediction, second, single_target
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.typed import accepting, float64
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import joined
from hbtvm.graph.networks.network import computed_columns
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node


def classifiers(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MultiOutputClassifier``."""
    estimators = members(record, table, where)
    classes = tuple(single_target(estimator, where) for estimator in estimators)
    outputs = {"index": joined.side_by_side([estimator.outputs["index"] for estimator in estimators])}
    if all("proba" in estimator.outputs for estimator in estimators):
        outputs["proba"] = joined.side_by_side([estimator.outputs["proba"] for estimator in estimators])
    return Predictor("classifier", outputs, classes, keeps_axis=True)


def regressors(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MultiOutputRegressor``."""
    estimators = members(record, table, where)
    response = joined.side_by_side([output(estimator, "response", where) for estimator in estimators])
    return Predictor("regressor", {"response": response}, keeps_axis=True)


def classifier_chain(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``ClassifierChain``: labels as numbers; each estimator reads the results of those before it."""
    method = record.get("chain_method_", "predict")
    methods = {"predict": prediction, "predict_proba": second, "decision_function": _decision}
    if not isinstance(method, str) or method not in methods:
        raise where.damaged("its chain_method_ is not a known method.")
    estimators, order = _chain(record, table, where, methods[method])
    outputs = {"index": joined.side_by_side([prediction(estimators[i], where) for i in order])}
    for name, of in (("proba", second), ("decision", _decision)):
        if all(name in estimator.outputs for estimator in estimators):
            outputs[name] = joined.side_by_side([of(estimators[i], where) for i in order])
    return Predictor("classifier", outputs, keeps_axis=True, label_dtype="float64")


def regressor_chain(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``RegressorChain``."""
    estimators, order = _chain(record, table, where, prediction)
    response = joined.side_by_side([prediction(estimators[i], where) for i in order])
    return Predictor("regressor", {"response": response}, keeps_axis=True)


def _decision(predictor: Predictor, where: Where) -> Node:
    return output(predictor, "decision", where)


def _chain(
    record: Record, table: Table, where: Where, method: Callable[[Predictor, Where], Node]
) -> tuple[list[Predictor], list[int]]:
    """Return the estimators in the chain's order, and each target's place among them."""
    records = record.records("estimators_")
    order = record.array("order_", "iu", 1).tolist()
    if not records or sorted(order) != list(range(len(records))):
        raise where.damaged("its order_ is not an order of its estimators.")
    # The library concatenates rows with predictions, even if there are none, to float64.
    columns = float64(accepting(table, nan=False, inf=False)).columns
    estimators: list[Predictor] = []
    for i, estimator in enumerate(records):
        # No columns behind the last estimator: rows of long chains are wide.
        estimators.append(read_predictor(estimator, Table(columns, table.sparse), where.child(i)))
        if i + 1 < len(records):
            prediction = method(estimators[-1], where)
            if prediction.width != 1:
                raise where.unsupported("holds an estimator of several outputs.")
            columns = (*columns, *computed_columns(prediction))
    return estimators, np.argsort(order, kind="stable").tolist()
