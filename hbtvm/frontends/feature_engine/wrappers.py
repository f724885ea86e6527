"""feature-engine's wrapper of transformers of scikit-learn."""

from __future__ import annotations

from hbtvm.frontends.feature_engine.columns import Columns
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import apply
from hbtvm.frontends.transformers.encoders.tables import category
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table

_CREATORS = ("OneHotEncoder", "PolynomialFeatures")
"""Transformers whose columns follow all others."""


def wrapper(record: Record, table: Table, where: Where) -> Table:
    """Read ``SklearnTransformerWrapper``: some columns, transformed in their places."""
    columns = Columns(record, table, where)
    if "features_to_drop_" in record:
        columns.drop([category(label) for label in record.sequence("features_to_drop_")])
        return columns.table()
    inner, variables = record.record("transformer_"), columns.variables()
    inputs = Table(tuple(columns[label] for label in variables), False, tuple(map(str, variables)))
    result = apply(inner, inputs, where.child("transformer_"))
    if inner.kind in _CREATORS:
        columns.drop(variables)
        variables = list(result.names or ())
    if len(variables) != len(result):
        raise where.damaged(f"its transformer makes {len(result)} columns.")
    for label, column in zip(variables, result.columns, strict=True):
        columns[label] = column
    return columns.table()
