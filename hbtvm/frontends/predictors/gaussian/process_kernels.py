"""Kernels of Gaussian processes: sums and products of functions of two rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import floats
from hbtvm.frontends.transformers.where import Where
from hbtvm.operators.base import Node, constant
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import whole_power
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce

_NAMES = (
    *("RBF", "Matern", "RationalQuadratic", "ExpSineSquared", "DotProduct", "ConstantKernel", "WhiteKernel"),
    *("Sum", "Product", "Exponentiation"),
)

_DEEPEST = 100  # bound of nested kernels


@dataclass(frozen=True)
class Kernel:
    """A kernel of rows."""

    values: Node  # with each of T points, width T; width 1 if it is the same for all
    diagonal: Node  # of each row with itself, width 1


def total(values: Node, weight: np.ndarray) -> Node:
    """Return sums of `Kernel.values` with weights, float64, shape (T, O)."""
    weight = weight.sum(axis=0, keepdims=True) if values.width == 1 else weight
    return Contract(values, np.ascontiguousarray(weight)).checked()


def kernel_of(record: Record, rows: Node, points: np.ndarray, where: Where, depth: int = 0) -> Kernel:
    """Read a fitted kernel of rows with stored points, float64, shape (T, F).

    Raises `UnsupportedModel` for other kernels than scikit-learn's.
    """
    if record.library != "sklearn" or record.kind not in _NAMES:
        raise where.unsupported(
            f"has the kernel {record.kind}, which is not supported; supported are {', '.join(_NAMES)}."
        )
    if depth > _DEEPEST:
        raise where.damaged(f"its kernels are nested more than {_DEEPEST} deep.")
    match record.kind:
        case "ConstantKernel":
            value = constant(record.number("constant_value"))
            return Kernel(value, value)
        case "WhiteKernel":
            # Other rows share no noise with training rows.
            return Kernel(constant(0.0), constant(record.number("noise_level")))
        case "Sum" | "Product":
            parts = [kernel_of(record.record(name), rows, points, where, depth + 1) for name in ("k1", "k2")]
            function = "add" if record.kind == "Sum" else "multiply"
            first, second = parts
            return Kernel(
                apply(function, first.values, second.values),
                apply(function, first.diagonal, second.diagonal),
            )
        case "Exponentiation":
            inner = kernel_of(record.record("kernel"), rows, points, where, depth + 1)
            power = record.number("exponent")
            return Kernel(whole_power(inner.values, power), whole_power(inner.diagonal, power))
        case "DotProduct":
            shift = record.number("sigma_0") ** 2
            product = Contract(rows, np.ascontiguousarray(points.T)).checked()
            square = reduce("sum", apply("square", rows))
            return Kernel(apply("add", product, shift), apply("add", square, shift))
    return Kernel(_stationary(record, rows, points, where), constant(1.0))


def _stationary(record: Record, rows: Node, points: np.ndarray, where: Where) -> Node:
    """Return a kernel that is a function of the distance alone."""
    name = record.kind
    if name in ("RBF", "Matern"):
        return _of_scaled(record, rows, points, where)
    scale = np.ones(points.shape[1])
    length = _positive(record, "length_scale", where)
    squares = _squares(rows, points, scale)
    if name == "RationalQuadratic":
        alpha = _positive(record, "alpha", where)
        base = apply("add", apply("divide", squares, 2.0 * alpha * length**2), 1.0)
        return apply("power", base, -alpha)
    period = _positive(record, "periodicity", where)
    wave = apply("sin", apply("multiply", apply("sqrt", squares), np.pi / period))
    return apply("exp", apply("multiply", apply("square", apply("divide", wave, length)), -2.0))


def _of_scaled(record: Record, rows: Node, points: np.ndarray, where: Where) -> Node:
    length = floats(record, "length_scale", where).reshape(-1)
    if len(length) not in (1, points.shape[1]) or not (length > 0).all():
        raise where.damaged(f"its kernel has {len(length)} length scales for {points.shape[1]} columns.")
    squares = _squares(rows, points, np.broadcast_to(1.0 / length, points.shape[1:]))
    nu = np.inf if record.kind == "RBF" else float(record.get("nu"))
    if nu == np.inf:
        return apply("exp", apply("multiply", squares, -0.5))
    if nu not in (0.5, 1.5, 2.5):
        raise where.unsupported(f"has a Matern kernel with nu={nu}; supported are 0.5, 1.5, 2.5 and inf.")
    away: Node = apply("sqrt", apply("multiply", squares, 2.0 * nu))
    power = apply("exp", apply("negative", away))
    if nu == 0.5:
        return power
    factor = apply("add", away, 1.0)
    if nu == 2.5:
        factor = apply("add", factor, apply("divide", apply("square", away), 3.0))
    return apply("multiply", factor, power)


def _squares(rows: Node, points: np.ndarray, scale: np.ndarray) -> Node:
    """Return squared distances, with differences scaled by column.

    Weights of a process nearly cancel, so distances must be sums of squared differences; a table of scales
    keeps kernels from expanding them into products.
    """
    factors = np.broadcast_to(scale, points.shape).copy()
    return Distance(rows, points, "squared_euclidean", factors).checked()


def _positive(record: Record, name: str, where: Where) -> float:
    value = floats(record, name, where).reshape(-1)
    if len(value) != 1 or value[0] <= 0:
        raise where.damaged(f"the {name} of its kernel is not a positive number.")
    return float(value[0])
