"""Nonlinear transformers of single columns: bins, quantiles, powers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.frontends.pickles import ObjectArray, Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers import scaling
from hbtvm.frontends.transformers.dispatch import names_in, require_width
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import dtype_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.curves import Bins, NormalQuantile, Power, Quantile
from hbtvm.graph.columns.steps import Cast, Equals, Step
from hbtvm.graph.columns.table import Column, Table


def k_bins(record: Record, table: Table, where: Where) -> Table:
    """``KBinsDiscretizer``: the number of each value's bin, or a column for each bin."""
    where.refuse_sparse(table, "takes no sparse rows in scikit-learn")
    encoding = one_of(record, "encode", ("onehot", "onehot-dense", "ordinal"))
    edges = _edges(record, len(table), where)
    first: tuple[Step, ...] = ()
    if record.get("dtype", None) is not None:
        narrow = dtype_of(record.get("dtype"), where) == np.float32
        first = (Cast("float32" if narrow else "float64"),)
    names = names_in(record, table)
    binned = [
        column.then(*first, Bins(column_edges[1:-1]))
        for column, column_edges in zip(accepting(unified(table), nan=False).columns, edges, strict=True)
    ]
    if encoding == "ordinal":
        return Table(tuple(binned), False, names)
    columns: list[Column] = []
    named: list[str] = []
    for at, (column, column_edges) in enumerate(zip(binned, edges, strict=True)):
        require_width(len(columns) + len(column_edges), where)
        for number in range(len(column_edges) - 1):
            columns.append(column.then(Equals((number,))))
            named.append("" if names is None else f"{names[at]}_{float(number)}")
    return Table(tuple(columns), encoding == "onehot", None if names is None else tuple(named))


def _edges(record: Record, width: int, where: Where) -> list[np.ndarray]:
    """The edges of each column's bins, both ends included; float64, at least two."""
    stored = record.get("bin_edges_")
    items = (
        stored.items if isinstance(stored, ObjectArray) else list(as_array(stored, "'bin_edges_'", "f", 2))
    )
    edges = [as_array(item, f"the edges of {where.step}", "f", 1).astype(np.float64) for item in items]
    if len(edges) != width:
        raise where.damaged(f"it has edges of {len(edges)} columns, but gets {width}.")
    for column_edges in edges:
        if len(column_edges) < 2 or not np.all(column_edges[1:] >= column_edges[:-1]):
            raise where.damaged("the edges of its bins don't ascend.")
    return edges


def quantile(record: Record, table: Table, where: Where) -> Table:
    """``QuantileTransformer``: shares of training, or the normal distribution's quantiles of them."""
    distribution = one_of(record, "output_distribution", ("uniform", "normal"))
    stored = record.array("quantiles_", "f", 2).astype(np.float64)
    shares = record.array("references_", "f", 1).astype(np.float64)
    if stored.shape != (len(shares), len(table)) or not len(shares) or not np.all(shares[1:] >= shares[:-1]):
        raise where.damaged(f"its quantiles have the shape {stored.shape}.")
    # scikit-learn leaves absent entries of sparse rows at 0. The share of 0 is 0 if no quantile is lower.
    if table.sparse or distribution == "normal" or (stored[0] < 0).any():
        where.refuse_sparse(table, "leaves absent entries of sparse rows at 0, which is not supported")
    columns = []
    for column, quantiles in zip(accepting(unified(table)).columns, stored.T, strict=True):
        if np.isnan(quantiles).all():
            # All values were missing in training: numpy interpolates NaN.
            raise where.unsupported("was fitted on a column without any value, which is not supported.")
        if not np.all(quantiles[1:] >= quantiles[:-1]):
            raise where.damaged("the quantiles of a column don't ascend.")
        normal = distribution == "normal"
        steps: list[Step] = [Quantile(quantiles, shares, 1e-7 if normal else 0.0)]
        columns.append(column.then(*steps, *([NormalQuantile()] if normal else [])))
    return Table(tuple(columns), table.sparse, names_in(record, table))


def power(record: Record, table: Table, where: Where) -> Table:
    """``PowerTransformer``: a power for each column, then mean 0 and variance 1 if asked."""
    where.refuse_sparse(table, "takes no sparse rows in scikit-learn")
    method = one_of(record, "method", ("yeo-johnson", "box-cox"))
    exponents = record.array("lambdas_", "f", 1)
    if len(exponents) != len(table) or not np.isfinite(exponents).all():
        raise where.damaged(f"it has {len(exponents)} exponents for {len(table)} columns.")
    narrow = exponents.dtype == np.float32
    columns = tuple(
        column.then(Power(method, exponent, bool(narrow)))  # type: ignore[arg-type]
        for column, exponent in zip(accepting(unified(table)).columns, exponents.tolist(), strict=True)
    )
    names = names_in(record, table)
    result = Table(columns, False, names)
    if record.get("standardize", True):
        result = replace(scaling.standard(record.record("_scaler"), result, where), names=names)
    return result
