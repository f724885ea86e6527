"""Clusterers as transformers."""

from __future__ import annotations

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.projections.matrices import computed, finite
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import apply


def distances(record: Record, table: Table, where: Where) -> Table:
    """Read ``KMeans``, ``MiniBatchKMeans``, ``BisectingKMeans`` or ``Birch``: distances to all centres."""
    name = "subcluster_centers_" if record.kind == "Birch" else "cluster_centers_"
    centres = finite(record, name, where, None, len(table))
    rows = TableRows(table)
    output = apply("sqrt", Distance(rows, centres).checked())
    return computed(table, rows, output, record.kind.lower())
