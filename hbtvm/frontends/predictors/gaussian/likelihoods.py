"""``score_samples`` of ``PCA`` and ``FactorAnalysis``: log densities of a Gaussian."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.matrices import type_of
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.projections.matrices import finite
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce

_MOST_COLUMNS = 1 << 10  # bound of a density's columns, with a weight for each pair of them


def principal_components(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``PCA``: the components' variances, and the same noise in all other directions."""
    # Precisions nearly cancel, so the library's steps are followed, in the type of training.
    dtype = type_of(record, "components_")
    components = finite(record, "components_", where, None, len(table)).astype(dtype)
    variances = finite(record, "explained_variance_", where, len(components)).astype(dtype)
    noise = dtype.type(record.number("noise_variance_"))
    if record.get("whiten", False):
        components = components * np.sqrt(variances)[:, None]
    above = np.where(variances > noise, variances - noise, dtype.type(0))
    if noise == 0:
        return _density(record, table, _inverse((components.T * above) @ components, where), where)
    # Woodbury's identity; components without a variance above the noise have no share.
    components, above = components[above > 0], above[above > 0]
    inner = components @ components.T / noise + np.diag(1 / above)
    less = components.T @ _inverse(inner, where) @ components / -(noise**2)
    return _density(record, table, less + np.eye(len(table), dtype=dtype) / noise, where)


def factor_analysis(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``FactorAnalysis``: the factors' covariance, and noise of each column."""
    components = finite(record, "components_", where, None, len(table))
    noise = finite(record, "noise_variance_", where, len(table))
    scaled = components / noise
    less = scaled.T @ _inverse(np.eye(len(components)) + scaled @ components.T, where) @ scaled
    return _density(record, table, np.diag(1.0 / noise) - less, where)


def _density(record: Record, table: Table, precision: np.ndarray, where: Where) -> Predictor:
    """Return the log density of a Gaussian, from the inverse of its covariance."""
    if len(table) > _MOST_COLUMNS:
        raise where.unsupported(f"has a density of more than {_MOST_COLUMNS:,} columns.")
    mean, precision = finite(record, "mean_", where, len(table)), precision.astype(np.float64)
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    if not (values > -1e-9 * np.abs(values).max(initial=0.0)).all():
        raise where.damaged("its covariance is not that of a density.")
    root = np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0)))
    sign, logarithm = np.linalg.slogdet(precision)
    away = apply("subtract", Contract(TableRows(table), root).checked(), mean @ root)
    constant = 0.5 * ((logarithm if sign > 0 else -np.inf) - len(table) * np.log(2 * np.pi))
    squares = reduce("sum", apply("square", away))
    return Predictor("anomaly", {"score": apply("add", apply("multiply", squares, -0.5), constant)})


def _inverse(matrix: np.ndarray, where: Where) -> np.ndarray:
    try:
        inverse: np.ndarray = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        raise where.unsupported("has a covariance without an inverse, so it has no density.") from None
    return inverse
