"""Transformers that multiply rows by a matrix."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.network import Computed, TableRows
from hbtvm.graph.table import Column, Made, Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract


def computed(table: Table, rows: TableRows, output: Node, prefix: str) -> Table:
    """The table of what a network makes of another table's rows; columns are named ``prefix0``, ``prefix1``, ..."""
    operation = Computed(table, rows, output)
    columns = tuple(Column(Made(operation, i)) for i in range(output.width))
    return Table(columns, names=tuple(f"{prefix}{i}" for i in range(output.width)))


def pca(record: Record, table: Table, where: Where) -> Table:
    """Read ``PCA`` or ``IncrementalPCA``."""
    components = record.array("components_", "f", 2).astype(np.float64)
    mean = record.array("mean_", "f").astype(np.float64).reshape(-1)
    if components.shape[1] != len(table) or len(mean) not in (0, len(table)):
        raise where.damaged(f"its components have the shape {components.shape}.")
    weight = components.T
    if record.get("whiten", False):
        variance = record.array("explained_variance_", "f", 1).astype(np.float64)
        # As small as this is 0 to the library.
        scale = np.sqrt(np.maximum(variance, np.finfo(variance.dtype).eps))
        weight = weight / scale
    rows = TableRows(table)
    product: Node = Contract(rows, np.ascontiguousarray(weight)).checked()
    if len(mean):
        product = apply("subtract", product, mean @ weight)
    return computed(table, rows, product, record.kind.lower())
