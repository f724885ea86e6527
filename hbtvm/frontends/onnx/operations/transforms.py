"""``post_transform`` and labels of ai.onnx.ml's models."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.onnx.call import Call
from hbtvm.frontends.onnx.operations.reductions import softmax
from hbtvm.frontends.onnx.values import Rows
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def transform_of(call: Call) -> str:
    """Return the attribute ``post_transform``.

    Raises `ModelError` if it is not one of `TRANSFORMS`.
    """
    transform = call.text("post_transform", "NONE")
    if transform not in TRANSFORMS:
        raise call.damaged(f"its post_transform is {transform[:20]!r}.")
    return transform


def transformed(node: Node, transform: str) -> Node:
    """Scores of two or more classes after the transform."""
    match transform:
        case "LOGISTIC":
            return apply("sigmoid", node)
        case "SOFTMAX":
            return softmax(node, 1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(node)
        case "PROBIT":
            return probit(node)
    return node


def _softmax_zero(node: Node) -> Node:
    """Softmax that leaves zeros zero: ONNX Runtime's, with its bound of 1e-7."""
    most = reduce("max", node)
    counts = apply("greater", apply("absolute", node), 1e-7)
    powers = apply("exp", apply("subtract", node, most))
    small = apply("multiply", node, apply("exp", apply("negative", most)))
    total = reduce("sum", apply("where", counts, powers, 0.0))
    return apply("divide", apply("where", counts, powers, small), total)


def probit(node: Node) -> Node:
    """Return the normal distribution's quantile, by ONNX Runtime's approximation."""
    x = apply("subtract", apply("multiply", node, 2.0), 1.0)
    log = apply("log", apply("multiply", apply("subtract", 1.0, x), apply("add", x, 1.0)))
    v = apply("add", apply("multiply", log, 0.5), 2.0 / (3.14159 * 0.147))
    root = apply("sqrt", apply("subtract", apply("square", v), apply("divide", log, 0.147)))
    size = apply("sqrt", apply("subtract", root, v))
    sign = apply("where", apply("less", x, 0.0), -1.0, 1.0)
    return apply("multiply", apply("multiply", sign, size), np.sqrt(2.0))


def labels_of(
    call: Call, *, names: tuple[str, str] = ("classlabels_strings", "classlabels_ints")
) -> np.ndarray:
    """The labels of a classifier: int64, or texts as objects.

    Raises `ModelError` if there are none.
    """
    texts, numbers = call.texts(names[0]), call.integers(names[1])
    if not texts and not len(numbers):
        raise call.damaged("it has no class labels.")
    if not texts:
        return numbers
    out = np.empty(len(texts), object)
    out[:] = texts
    return out


def labelled(index: Node, labels: np.ndarray, origin: Any = None) -> Rows:
    """Labels by their positions: shape (rows,)."""
    return Rows((None,), "str" if labels.dtype == object else "int64", index, labels, origin)
