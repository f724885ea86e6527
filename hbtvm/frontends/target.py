"""``TransformedTargetRegressor``: a regressor, and the inverse transform of its target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers import Where
from hbtvm.frontends.transformers.containers import steps_of
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.functions import known_function
from hbtvm.graph.columns.table import Table
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.step_nodes import function_node
from hbtvm.graph.outputs.output import unrounded
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.error_function import erf
from hbtvm.operators.pointwise import apply
from hbtvm.operators.tables import Interpolate

_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
_BY_NODES = ("QuantileTransformer", "PowerTransformer", "Pipeline")
_NEAR = 1e-7
"""Bound of the shares that a ``QuantileTransformer`` of normal distributions takes for 0 or 1."""


def by_nodes(model: Record) -> bool:
    """Return whether kernels compute the inverse transform of a target; else the host does."""
    return model.record("transformer_").is_a("sklearn", *_BY_NODES)


def regressor_of(model: Record, where: Where) -> Record:
    """Return the fitted regressor of a ``TransformedTargetRegressor``; `UnsupportedModel` if it has none."""
    if not isinstance(model.get("regressor_", None), Record):
        raise UnsupportedModel(f"{where.of(model).step} is not fitted; hbtvm compiles trained models.")
    return model.record("regressor_")


def last_regressor(
    model: Record, table: Table, where: Where, predicts: bool
) -> tuple[Record, Table, Where] | None:
    """Return the regressor, if the host computes the inverse transform of its outputs."""
    if not predicts or by_nodes(model):
        return None
    return regressor_of(model, where), table, where.child("regressor_")


def undone_graph(model: Record, graph: Graph, where: Where) -> Graph:
    """Return the graph of the regressor with its outputs on the scale of the target."""
    output = graph.output
    if output.kind == "clusterer" or "response" not in output.nodes:
        raise where.unsupported(f"has a {output.kind} as its regressor, which is not supported.")
    response = undone_node(model.record("transformer_"), output.nodes["response"], where)
    keeps = output.keeps_axis or keeps_axis(model)
    return replace(graph, output=replace(output, nodes={"response": response}, keeps_axis=keeps))


def predictor(model: Record, table: Table, where: Where) -> Predictor:
    """Read ``TransformedTargetRegressor`` as operators."""
    fitted = read_predictor(regressor_of(model, where), table, where.child("regressor_"))
    if set(fitted.outputs) - {"raw"} != {"response"}:
        raise where.unsupported(f"has a {fitted.kind} as its regressor, which is not supported.")
    response = undone_node(model.record("transformer_"), fitted.outputs["response"], where)
    return Predictor(
        fitted.kind,
        {"response": response},
        keeps_axis=fitted.keeps_axis or keeps_axis(model),
        label_dtype=fitted.label_dtype,
    )


def keeps_axis(model: Record) -> bool:
    """Return whether responses of one column have shape (n, 1), as the training targets had."""
    return model.whole("_training_dim", 1, 1) != 1


def undone_node(transformer: Record, x: Node, where: Where) -> Node:
    """Return a fitted transformer's ``inverse_transform`` of a node's columns.

    Raises
    ------
    UnsupportedModel
        If the transformer is not known.
    """
    if transformer.is_a("sklearn", "Pipeline"):
        for _, step, place in reversed(list(steps_of(transformer, where))):
            x = undone_node(step, x, place)
        return x
    if transformer.is_a("sklearn", "QuantileTransformer"):
        return _quantile(transformer, x, where)
    if transformer.is_a("sklearn", "PowerTransformer"):
        return _power(transformer, x, where)
    return _by_steps(transformer, x, where)


def _quantile(transformer: Record, x: Node, where: Where) -> Node:
    quantiles = transformer.array("quantiles_", "f", 2).astype(np.float64)
    shares = transformer.array("references_", "f", 1).astype(np.float64)
    if quantiles.shape != (len(shares), x.width) or not len(shares) or np.any(shares[1:] < shares[:-1]):
        raise where.damaged(f"its target's quantiles have the shape {quantiles.shape}.")
    normal = one_of(transformer, "output_distribution", ("uniform", "normal")) == "normal"
    if normal:
        x = apply("multiply", apply("add", erf(apply("multiply", x, np.sqrt(0.5))), 1.0), 0.5)
    values = np.ascontiguousarray(quantiles.T)
    result: Node = Interpolate(x, np.broadcast_to(shares, values.shape).copy(), values)
    if not normal:
        return result
    low, high = apply("less", x, _NEAR), apply("greater", apply("add", x, _NEAR), 1.0)
    return apply("where", low, values[:, 0], apply("where", high, values[:, -1], result))


def _power(transformer: Record, x: Node, where: Where) -> Node:
    exponents = transformer.array("lambdas_", "f", 1).astype(np.float64)
    if len(exponents) != x.width or not np.isfinite(exponents).all():
        raise where.damaged(f"its target has {len(exponents)} exponents for {x.width} outputs.")
    method = one_of(transformer, "method", ("yeo-johnson", "box-cox"))
    if transformer.get("standardize", True):
        x = _by_steps(transformer.record("_scaler"), x, where)
    if method == "box-cox":
        scaled = apply("divide", apply("log1p", apply("multiply", x, exponents)), _not_zero(exponents))
        return apply("exp", apply("where", exponents == 0, x, scaled))
    below = apply("negative", _yeo_johnson(apply("negative", x), 2 - exponents))
    # (NaN, which is on neither side, stays.)
    return apply("where", apply("greater_equal", x, 0.0), _yeo_johnson(x, exponents), below)


def _yeo_johnson(x: Node, exponents: np.ndarray) -> Node:
    """Return ``(x * exponent + 1) ** (1 / exponent) - 1``, or its limit; NaN for roots of numbers below 0."""
    base = apply("add", apply("multiply", x, exponents), 1.0)
    power = apply("power", base, 1.0 / _not_zero(exponents))
    limit = np.abs(exponents) <= np.spacing(1.0)
    return apply("subtract", apply("where", limit, apply("exp", x), power), 1.0)


def _not_zero(exponents: np.ndarray) -> np.ndarray:
    """Return divisors, with 1 for exponents that need another formula."""
    return np.where(np.abs(exponents) <= np.spacing(0.0), 1.0, exponents)


def _by_steps(transformer: Record, x: Node, where: Where) -> Node:
    """Return numpy's function, or a scaler's arithmetic; float32 values are rounded after each step."""
    rounds = unrounded(x) is not x

    def then(value: Node) -> Node:
        return apply("round_float32", value) if rounds else value

    if transformer.is_a("sklearn", "FunctionTransformer"):
        arguments = transformer.get("inv_kw_args", None)
        name = known_function(transformer.get("inverse_func", None), arguments, where)
        return x if name in (None, "positive") else then(function_node(name, x))
    if not transformer.is_a("sklearn", *_SCALERS):
        raise where.unsupported(
            f"transforms its target by a {transformer.kind}, which is not supported; supported are functions "
            f"of numpy, {', '.join((*_SCALERS, *_BY_NODES))}."
        )

    def step(operation: str, name: str) -> Node:
        values = transformer.array(name, "f", 1)
        if len(values) != x.width:
            raise where.damaged(f"its target's {name} has {len(values)} values for {x.width} outputs.")
        return then(apply(operation, x, values))

    if transformer.kind == "MinMaxScaler":
        x = step("subtract", "min_")
        return step("divide", "scale_")
    if transformer.kind == "MaxAbsScaler":
        return step("multiply", "scale_")
    scaled, shifted, center = (
        ("with_std", "with_mean", "mean_")
        if transformer.kind == "StandardScaler"
        else ("with_scaling", "with_centering", "center_")
    )
    if transformer.get(scaled, True):
        x = step("multiply", "scale_")
    return step("add", center) if transformer.get(shifted, True) else x
