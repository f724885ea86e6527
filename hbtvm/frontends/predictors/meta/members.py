"""Probabilities, scores and labels of an ensemble's estimators, as nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Cast
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import joined
from hbtvm.graph.networks.network import computed_columns
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import select
from hbtvm.operators.tables import lookup


def members(record: Record, table: Table, where: Where, name: str = "estimators_") -> list[Predictor]:
    """Read all estimators of a list over the same table.

    Raises `ModelError` if there are none.
    """
    records = record.records(name)
    if not records:
        raise where.damaged(f"its {name} is empty.")
    return [read_predictor(member, table, where.child(i)) for i, member in enumerate(records)]


def output(predictor: Predictor, name: str, where: Where) -> Node:
    """Return an output of an inner estimator.

    Raises `UnsupportedModel` if it has no such output.
    """
    if name not in predictor.outputs:
        has = ", ".join(predictor.outputs)
        raise where.unsupported(f"needs the output {name!r} of an estimator that has {has}.")
    return predictor.outputs[name]


def prediction(predictor: Predictor, where: Where) -> Node:
    """Return an estimator's ``predict`` as numbers: labels of one or several targets, or responses.

    Raises `UnsupportedModel` if the labels are not numbers.
    """
    if "index" not in predictor.outputs:
        return output(predictor, "response", where)
    index = predictor.outputs["index"]
    if not predictor.classes:
        return index
    tables = []
    for labels in predictor.classes:
        if labels.dtype.kind not in "biuf":
            raise where.unsupported("computes with the labels of an estimator, which are not numbers.")
        tables.append(labels.astype(np.float64))
    if all(np.array_equal(labels, np.arange(len(labels))) for labels in tables):
        return index
    return lookup(index, range(len(tables)), tables)


def single_target(predictor: Predictor, where: Where) -> np.ndarray:
    """Return the labels of a classifier of a single target.

    Raises `UnsupportedModel` for other estimators.
    """
    if len(predictor.classes) != 1 or "index" not in predictor.outputs:
        raise where.unsupported("holds an estimator that is not a classifier of one target.")
    return predictor.classes[0]


def positive(predictor: Predictor, where: Where) -> Node:
    """Return a binary estimator's score of its second class.

    It is the decision function, the probability of that class, or a regressor's response.
    """
    if predictor.kind == "regressor":
        return output(predictor, "response", where)
    if "decision" in predictor.outputs:
        return predictor.outputs["decision"]
    return second(predictor, where)


def positive_threshold(predictor: Predictor) -> float:
    """Return the score (see `positive`) above which an estimator chooses its second class."""
    return 0.0 if "decision" in predictor.outputs and predictor.kind == "classifier" else 0.5


def second(predictor: Predictor, where: Where) -> Node:
    """Return the probability of the second of two classes.

    Raises `ModelError` if there is no second class.
    """
    proba = output(predictor, "proba", where)
    if proba.width < 2:
        raise where.damaged("it holds an estimator of a single class.")
    # A selection: if the first class is computed from the second, that is dropped.
    return select(proba, [1])


def by_label(index: Node, count: int) -> Node:
    """Return 1 in the column of each row's label, else 0; width `count`."""
    return apply("equal", index, np.arange(count, dtype=np.float64))


def made_by_members(record: Record, parts: Sequence[Node]) -> Table:
    """Return the table of the columns of each estimator of an ensemble, with the ensemble's names."""
    columns = computed_columns(joined.side_by_side(parts))
    names = [
        str(part[0])
        for part in record.sequence("estimators")
        if isinstance(part, (tuple, list)) and not is_dropped(part[-1])
    ]
    if len(names) != len(parts):
        return Table(columns)
    prefix = record.kind.lower()
    return Table(
        columns,
        names=tuple(
            f"{prefix}_{name}{i if part.width > 1 else ''}"
            for name, part in zip(names, parts, strict=True)
            for i in range(part.width)
        ),
    )


def is_dropped(estimator: object) -> bool:
    """Return whether an entry of an ensemble's ``estimators`` is dropped."""
    return estimator is None or (isinstance(estimator, str) and estimator == "drop")


def in_their_type(table: Table, estimators: Sequence[Predictor]) -> Table:
    """Return the columns of estimators, in float32 if all of them predict float32."""
    if not all(estimator.responds_in_float32 for estimator in estimators):
        return table
    return replace(table, columns=tuple(column.then(Cast("float32")) for column in table.columns))
