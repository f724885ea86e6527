"""Transformers that multiply rows by a matrix."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.matrices import matrix
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import function_name
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Column, Made, Table
from hbtvm.graph.networks.network import Computed, TableRows
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce


def computed(
    table: Table,
    rows: TableRows,
    output: Node,
    prefix: str,
    names: tuple[str, ...] | None = None,
    sparse: bool | None = False,
    narrow: bool = False,
) -> Table:
    """Return the table of a network's columns, named ``prefix0``, ``prefix1``, ...

    `names`: other names of the columns.
    `sparse`: see `Table`.
    """
    operation = Computed(table, rows, output, narrow)
    columns = tuple(Column(Made(operation, i)) for i in range(output.width))
    return Table(columns, sparse, names or tuple(f"{prefix}{i}" for i in range(output.width)))


def finite(record: Record, name: str, where: Where, *shape: int | None) -> np.ndarray:
    """Return an attribute, a vector or a (maybe sparse) matrix of finite numbers, as float64."""
    values = matrix(record, name) if len(shape) == 2 else record.array(name, "biuf", 1)
    sizes = zip(values.shape, shape, strict=True)
    if not values.size or any(wanted is not None and size != wanted for size, wanted in sizes):
        raise where.damaged(f"its {name} has the shape {values.shape}.")
    if not np.isfinite(values).all():
        raise where.damaged(f"a number of its {name} is not finite.")
    return values.astype(np.float64)


def product(
    record: Record,
    table: Table,
    weight: np.ndarray,
    minus: np.ndarray | None = None,
    sparse: bool | None = False,
) -> Table:
    """The table of ``rows @ weight - minus``, named after the estimator's class."""
    rows = TableRows(table)
    output: Node = Contract(rows, np.ascontiguousarray(weight, np.float64)).checked()
    if minus is not None:
        output = apply("subtract", output, minus)
    return computed(table, rows, output, record.kind.lower(), sparse=sparse)


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
    return product(record, table, weight, mean @ weight if len(mean) else None)


def by_components(record: Record, table: Table, where: Where) -> Table:
    """Read ``TruncatedSVD`` or ``NeighborhoodComponentsAnalysis``."""
    return product(record, table, finite(record, "components_", where, None, len(table)).T)


def agglomeration(record: Record, table: Table, where: Where) -> Table:
    """Read ``FeatureAgglomeration``: means of groups of columns."""
    pooling = record.get("pooling_func", None)
    if not isinstance(pooling, Global) or (pooling.library, pooling.name) != ("numpy", "mean"):
        raise where.unsupported(f"pools by {function_name(pooling)}; supported is numpy.mean.")
    labels = record.array("labels_", "i", 1)
    groups = np.unique(labels)
    if len(labels) != len(table) or not np.array_equal(groups, np.arange(len(groups))):
        raise where.damaged("its labels_ are not groups of its columns.")
    weight = labels[:, None] == groups
    return product(record, table, weight / weight.sum(axis=0))


def random_projection(record: Record, table: Table, where: Where) -> Table:
    """Read ``GaussianRandomProjection`` or ``SparseRandomProjection``."""
    weight = finite(record, "components_", where, None, len(table)).T
    keeps = record.kind.startswith("Sparse") and not record.get("dense_output", False)
    return product(record, table, weight, sparse=table.sparse if keeps else False)


def fast_ica(record: Record, table: Table, where: Where) -> Table:
    """Read ``FastICA``: the mean is subtracted if the fit whitened."""
    weight = finite(record, "components_", where, None, len(table)).T
    if not record.get("whiten"):
        return product(record, table, weight)
    return product(record, table, weight, finite(record, "mean_", where, len(table)) @ weight)


def factor_analysis(record: Record, table: Table, where: Where) -> Table:
    """Read ``FactorAnalysis``: the expected factors of a row."""
    components = finite(record, "components_", where, None, len(table))
    scaled = components / finite(record, "noise_variance_", where, len(table))
    covariance = np.linalg.inv(np.eye(len(components)) + scaled @ components.T)
    weight = scaled.T @ covariance
    return product(record, table, weight, finite(record, "mean_", where, len(table)) @ weight)


def sparse_pca(record: Record, table: Table, where: Where) -> Table:
    """Read ``SparsePCA`` or ``MiniBatchSparsePCA``: a ridge regression of rows on the components."""
    components = finite(record, "components_", where, None, len(table))
    penalty = record.number("ridge_alpha") * np.eye(len(components))
    try:
        weight = np.linalg.solve(components @ components.T + penalty, components).T
    except np.linalg.LinAlgError:
        raise where.unsupported("has components that depend on each other, which is not supported.") from None
    return product(record, table, weight, finite(record, "mean_", where, len(table)) @ weight)


def boltzmann_machine(record: Record, table: Table, where: Where) -> Table:
    """Read ``BernoulliRBM``: the probabilities of its hidden units."""
    components = finite(record, "components_", where, None, len(table))
    rows = TableRows(table)
    activation = Contract(rows, np.ascontiguousarray(components.T)).checked()
    shifted = apply("add", activation, finite(record, "intercept_hidden_", where, len(components)))
    return computed(table, rows, apply("sigmoid", shifted), "bernoullirbm")


def partial_least_squares(record: Record, table: Table, where: Where) -> Table:
    """Read ``PLSRegression``, ``PLSCanonical``, ``CCA`` or ``PLSSVD`` as a transformer of X."""
    name = "x_weights_" if record.kind == "PLSSVD" else "x_rotations_"
    rotations = finite(record, name, where, len(table), None)
    # Before scikit-learn 1.1 these were public.
    mean, deviation = (
        finite(record, f"_{name}" if f"_{name}" in record else f"{name}_", where, len(table))
        for name in ("x_mean", "x_std")
    )
    weight = rotations / deviation[:, None]
    return product(record, table, weight, mean @ weight)


def linear_discriminant(record: Record, table: Table, where: Where) -> Table:
    """Read ``LinearDiscriminantAnalysis`` as a transformer."""
    solver = record.text("solver")
    if solver not in ("svd", "eigen"):
        raise where.unsupported(f"has the solver {solver!r:.20}, with which scikit-learn does not transform.")
    weight = finite(record, "scalings_", where, len(table), None)[:, : record.whole("_max_components", 1)]
    if solver == "eigen":
        return product(record, table, weight)
    return product(record, table, weight, finite(record, "xbar_", where, len(table)) @ weight)


def kernel_centerer(record: Record, table: Table, where: Where) -> Table:
    """Read ``KernelCenterer``: columns and rows of a kernel's matrix minus their means."""
    means = record.array("K_fit_rows_", "f", 1).astype(np.float64)
    overall = record.number("K_fit_all_")
    if len(means) != len(table):
        raise where.damaged(f"it has means of {len(means)} columns, but gets {len(table)}.")
    inputs = accepting(unified(table), nan=False)
    rows = TableRows(inputs)
    row_means = apply("divide", reduce("sum", rows), float(len(means)))
    centred = apply("subtract", apply("subtract", rows, means), row_means)
    return computed(inputs, rows, apply("add", centred, overall), "kernelcenterer", narrow=True)
