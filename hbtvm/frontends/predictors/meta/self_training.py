"""scikit-learn's self-training classifier."""

from __future__ import annotations

from dataclasses import replace

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table


def unwrapped(record: Record, where: Where) -> Record:
    """Return the classifier that the last round of a ``SelfTrainingClassifier`` fitted."""
    return record.record("estimator_" if "estimator_" in record else "base_estimator_")


def last(record: Record, table: Table, where: Where, predicts: bool) -> tuple[Record, Table, Where] | None:
    """Return the classifier, the table that it reads, and its place; None as a transformer."""
    if not predicts:
        return None
    return unwrapped(record, where), table, replace(where.child("estimator"), path=where.path)
