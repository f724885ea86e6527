"""category_encoders' ``HashingEncoder``: counts of a row's categories by the hashes of their texts."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from hbtvm.frontends.category_encoders.columns import labels_of
from hbtvm.frontends.category_encoders.encoders import of_na
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import require_width
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.row_operations import Buckets, Method
from hbtvm.graph.columns.steps import Cast
from hbtvm.graph.columns.table import Column, Made, Table


def hashing(record: Record, table: Table, where: Where) -> Table:
    """Read ``HashingEncoder``: the columns of counts, and behind them the columns that it does not hash."""
    if record.get("composite_members_", None) or record.get("min_group_lumping_", None):
        raise where.unsupported("joins columns or groups categories, which is not supported before hashes.")
    labels, names = labels_of(record, table, where)
    chosen, dtypes = record.sequence("cols"), record.sequence("feature_dtypes_in_")
    if any(label not in labels for label in chosen):
        raise where.damaged("its cols are not its columns.")
    if not chosen:
        return Table(table.columns, False, tuple(names))
    method, width = record.text("hash_method"), record.whole("n_components")
    if method not in get_args(Method):
        raise where.unsupported(
            f"hashes by {method!r:.40}, which is not supported; supported are {', '.join(get_args(Method))}."
        )
    if width < 1:
        raise where.damaged(f"it has {width} buckets.")
    require_width(width, where)
    at = [labels.index(label) for label in chosen]
    missing = tuple(_missing(dtypes[i], names[i], where) for i in at)
    operation = Buckets(Table(tuple(table.columns[i] for i in at)), width, method, missing, where.step)
    wide = Cast("float64")
    columns = {f"col_{i}": Column(Made(operation, i), (wide,)) for i in range(width)}
    others = {name: table.columns[i] for i, name in enumerate(names) if i not in at}
    if columns.keys() & others.keys():
        raise where.unsupported("gets columns with the names of its own, col_0 and so on; rename them.")
    columns |= others
    for name in record.sequence("invariant_cols") if record.get("drop_invariant") else ():
        columns.pop(str(name), None)
    return Table(tuple(columns.values()), False, tuple(columns))


def _missing(dtype: Any, name: str, where: Where) -> str:
    """Return the text of a column's missing value; empty for integers.

    Raises `UnsupportedModel` for types of numbers whose texts depend on the other columns of a frame.
    """
    if isinstance(dtype, np.dtype) and dtype.kind not in "OiuU":
        raise where.unsupported(
            f"hashes the texts of numbers in column {name!r:.60}; convert them to strings or integers."
        )
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        return ""
    return "<NA>" if of_na(dtype) else "nan"
