"""InterpretML's wrappers of linear models and trees of scikit-learn."""

from __future__ import annotations

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.typed import accepting
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table


def unwrapped(record: Record, where: Where) -> Record:
    """Return scikit-learn's model, of numbers alone."""
    if record.get("has_fitted_", False) is not True:
        raise where.of(record).unsupported("is not fitted; hbtvm compiles trained models.")
    if any(kind != "continuous" for kind in record.sequence("feature_types_in_")):
        raise where.of(record).unsupported(
            "has columns of categories, which is not supported; ExplainableBoosting models of them compile."
        )
    return record.record("sk_model_")


def last(record: Record, table: Table, where: Where, predicts: bool) -> tuple[Record, Table, Where] | None:
    """Return the model, the table that it reads, and its place; None as a transformer."""
    if not predicts:
        return None
    return unwrapped(record, where), accepting(table, nan=False, inf=True), where.child("sk_model_")
