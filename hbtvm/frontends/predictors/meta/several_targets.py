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
    found = members(record, table, where)
    classes = tuple(single_target(one, where) for one in found)
    outputs = {"index": joined.side_by_side([one.outputs["index"] for one in found])}
    if all("proba" in one.outputs for one in found):
        outputs["proba"] = joined.side_by_side([one.outputs["proba"] for one in found])
    return Predictor("classifier", outputs, classes, keeps_axis=True)


def regressors(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MultiOutputRegressor``."""
    found = members(record, table, where)
    response = joined.side_by_side([output(one, "response", where) for one in found])
    return Predictor("regressor", {"response": response}, keeps_axis=True)


def classifier_chain(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``ClassifierChain``: labels as numbers; each estimator reads what those before it say."""
    method = record.get("chain_method_", "predict")
    methods = {"predict": prediction, "predict_proba": second, "decision_function": _decision}
    if not isinstance(method, str) or method not in methods:
        raise where.damaged("its chain_method_ is no method.")
    found, order = _chain(record, table, where, methods[method])
    outputs = {"index": joined.side_by_side([prediction(found[i], where) for i in order])}
    for name, of in (("proba", second), ("decision", _decision)):
        if all(name in one.outputs for one in found):
            outputs[name] = joined.side_by_side([of(found[i], where) for i in order])
    return Predictor("classifier", outputs, keeps_axis=True, label_dtype="float64")


def regressor_chain(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``RegressorChain``."""
    found, order = _chain(record, table, where, prediction)
    response = joined.side_by_side([prediction(found[i], where) for i in order])
    return Predictor("regressor", {"response": response}, keeps_axis=True)


def _decision(predictor: Predictor, where: Where) -> Node:
    return output(predictor, "decision", where)


def _chain(
    record: Record, table: Table, where: Where, method: Callable[[Predictor, Where], Node]
) -> tuple[list[Predictor], list[int]]:
    """The estimators in the chain's order, and where each target's is."""
    records = record.records("estimators_")
    order = record.array("order_", "iu", 1).tolist()
    if not records or sorted(order) != list(range(len(records))):
        raise where.damaged("its order_ is no order of its estimators.")
    # Beside predictions, even none, rows are float64.
    columns = float64(accepting(table, nan=False, inf=False)).columns
    found: list[Predictor] = []
    for i, one in enumerate(records):
        # No more columns than the next ones need: a chain of many has wide rows already.
        found.append(read_predictor(one, Table(columns, table.sparse), where.child(i)))
        if i + 1 < len(records):
            made = method(found[-1], where)
            if made.width != 1:
                raise where.unsupported("holds an estimator of several outputs.")
            columns = (*columns, *computed_columns(made))
    return found, np.argsort(order, kind="stable").tolist()
