"""scikit-learn's partial least squares as regressors."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import floats
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract


def partial_least_squares(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``PLSRegression``, ``PLSCanonical`` or ``CCA``."""
    width = len(table)
    # Before scikit-learn 1.1 the mean was public.
    mean = floats(record, "_x_mean" if "_x_mean" in record else "x_mean_", where, width)
    # Before 1.3 coefficients were for scaled columns, and transposed.
    if record.version() >= (1, 3):
        weight = floats(record, "coef_", where, None, width).T
    else:
        deviation = floats(record, "_x_std" if "_x_std" in record else "x_std_", where, width)
        weight = floats(record, "coef_", where, width, None) / deviation[:, None]
    names = ("intercept_", "_y_mean", "y_mean_")
    name = next((name for name in names if name in record), names[0])
    intercept = floats(record, name, where, weight.shape[1])
    product = Contract(TableRows(table), np.ascontiguousarray(weight)).checked()
    response = apply("add", product, intercept - mean @ weight)
    flat = record.get("_predict_1d", False) is True
    return Predictor("regressor", {"response": response}, keeps_axis=not flat)
