"""``RandomTreesEmbedding``: the leaves of a forest that a row reaches."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn.forest import leaf_numbers
from hbtvm.frontends.transformers.dispatch import require_width
from hbtvm.frontends.transformers.projections.matrices import computed
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.operators.tables import OneHot


def random_trees(record: Record, table: Table, where: Where) -> Table:
    """Read ``RandomTreesEmbedding``: 1 for the leaf of each tree that a row reaches, else 0."""
    ensemble, allow_nan = leaf_numbers(record)
    leaves = [
        as_array(categories, f"the leaves of {where.step}", "iu", 1)
        for categories in record.record("one_hot_encoder_").sequence("categories_")
    ]
    if len(leaves) != ensemble.n_outputs or not all(map(len, leaves)):
        raise where.damaged(f"it knows leaves of {len(leaves)} trees of {ensemble.n_outputs}.")
    require_width(sum(map(len, leaves)), where)
    if ensemble.n_features != len(table):
        raise where.damaged(f"it was fitted on {ensemble.n_features} columns, but gets {len(table)}.")
    rows = TableRows(table, allow_nan=allow_nan)
    tree = np.repeat(
        np.arange(len(leaves), dtype=np.int32), [len(leaves_of_tree) for leaves_of_tree in leaves]
    )
    number = np.concatenate(leaves).astype(np.float64)
    output = OneHot(Trees(rows, ensemble), tree, number)
    names = tuple(
        f"randomtreesembedding_{t}_{leaf}"
        for t, leaves_of_tree in enumerate(leaves)
        for leaf in leaves_of_tree.tolist()
    )
    sparse = bool(record.get("sparse_output", True))
    return computed(table, rows, output, "randomtreesembedding", names, sparse=sparse)
