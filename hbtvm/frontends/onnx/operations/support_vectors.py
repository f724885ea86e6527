"""``SVMClassifier`` and ``SVMRegressor`` of ai.onnx.ml, in libsvm's and in liblinear's form."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations.linear import matrix
from hbtvm.frontends.onnx.operations.transforms import labelled, labels_of, transform_of, transformed
from hbtvm.frontends.onnx.values import Rows, Value, of_node
from hbtvm.operators.base import Node
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, reduce

_LEAST_PROBABILITY = 1e-7


def _kernel(call: Call, x: Rows, vectors: np.ndarray, kind: str) -> Node:
    """Return the kernel values of rows with vectors, shape (vectors, columns)."""
    parameters = call.array("kernel_params").astype(np.float64)
    gamma, coefficient, degree = parameters.tolist() if len(parameters) == 3 else (0.0, 0.0, 0.0)
    if len(parameters) not in (0, 3):
        raise call.damaged(f"it has {len(parameters)} kernel_params, expected 3.")
    if kind == "RBF":
        away = Distance(x.node(), vectors).checked()
        return apply("exp", apply("multiply", away, -gamma))
    product = Contract(x.node(False), np.ascontiguousarray(vectors.T)).checked()
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            base = apply("add", apply("multiply", product, gamma), coefficient)
            if degree == 2:
                return apply("square", base)
            return base if degree == 1 else apply("power", base, degree)
        case "SIGMOID":
            return apply("tanh", apply("add", apply("multiply", product, gamma), coefficient))
    raise call.damaged(f"its kernel_type is {kind[:20]!r}.")


def _vectors(call: Call, x: Rows, count: int) -> np.ndarray:
    vectors = call.array("support_vectors").astype(np.float64)
    if not x.width or count < 1 or len(vectors) != count * x.width:
        raise call.damaged(f"it has {len(vectors):,} numbers as {count:,} vectors of {x.width:,} columns.")
    return vectors.reshape(count, x.width)


def _rho(call: Call, count: int) -> np.ndarray:
    rho = call.array("rho").astype(np.float64)
    if len(rho) < count:
        raise call.damaged(f"it has {len(rho)} numbers as its rho, expected {count}.")
    return rho[:count]


def _regressor(call: Call) -> Value:
    x, count = matrix(call, call.rows()), call.whole("n_supports", 0)
    weight = call.array("coefficients").astype(np.float64)
    if count > 0:
        values = _kernel(call, x, _vectors(call, x, count), call.text("kernel_type", "LINEAR"))
    else:
        count, values = x.width, x.node(False)
    if len(weight) != count or not count:
        raise call.damaged(f"it has {len(weight):,} coefficients, expected {count:,}.")
    node: Node = apply("add", Contract(values, weight[:, None]), _rho(call, 1))
    if transform_of(call) != "NONE":
        raise call.unsupported(f"has the post_transform {transform_of(call)}, which is not supported.")
    if call.whole("one_class", 0):
        node = apply("where", apply("greater", node, 0.0), 1.0, -1.0)
    return of_node(node, (None, 1))


def _classifier(call: Call) -> tuple[Value, ...]:
    x, labels = matrix(call, call.rows()), labels_of(call)
    sizes = call.integers("vectors_per_class")
    if not sizes.sum():
        return _of_coefficients(call, x, labels)
    classes = len(labels)
    if len(sizes) != classes or np.any(sizes < 0) or classes < 2:
        raise call.damaged(f"it has the support vectors of {len(sizes)} classes for {classes} labels.")
    total = int(sizes.sum())
    values = _kernel(call, x, _vectors(call, x, total), call.text("kernel_type", "LINEAR"))
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if total * len(pairs) > 1 << 26:
        raise call.unsupported(f"has {total:,} vectors of {classes:,} classes, which is not supported.")
    node = apply("add", Contract(values, _pair_weights(call, sizes, total, classes)), _rho(call, len(pairs)))
    won = apply("greater", node, 0.0)
    signs = np.zeros((len(pairs), classes))
    for at, (i, j) in enumerate(pairs):
        signs[at, i], signs[at, j] = 1.0, -1.0
    # The product subtracts a vote from each pair's second class unless it wins: add these back.
    votes = apply("add", Contract(won, signs), np.arange(classes, dtype=np.float64))
    index: Node = reduce("argmax", votes)
    a, b = call.array("prob_a").astype(np.float64), call.array("prob_b").astype(np.float64)
    transform = transform_of(call)
    if len(a):
        if len(a) < len(pairs) or len(b) != len(a):
            raise call.damaged(f"it has {len(a)} and {len(b)} numbers as its prob_a and prob_b.")
        line = apply("add", apply("multiply", node, a[: len(pairs)]), b[: len(pairs)])
        shares = apply("sigmoid", apply("negative", line))
        kept = apply("minimum", apply("maximum", shares, _LEAST_PROBABILITY), 1.0 - _LEAST_PROBABILITY)
        coupled: Node = Coupling(kept, classes).checked()
        return labelled(index, labels), of_node(transformed(coupled, transform), (None, classes))
    if classes > 2:
        return labelled(index, labels), of_node(transformed(node, transform), (None, len(pairs)))
    # For a single score, ONNX Runtime returns two.
    both = concat([apply("negative", node) if transform == "NONE" else apply("subtract", 1.0, node), node])
    return labelled(index, labels), of_node(both, (None, 2))


def _pair_weights(call: Call, sizes: np.ndarray, total: int, classes: int) -> np.ndarray:
    """Return the coefficients of each pair, float64, shape (vectors, pairs).

    The model stores a vector's coefficients by the other classes, in order.
    """
    stored = call.array("coefficients").astype(np.float64)
    if len(stored) != (classes - 1) * total:
        raise call.damaged(f"it has {len(stored):,} coefficients, expected {(classes - 1) * total:,}.")
    dual = stored.reshape(classes - 1, total)
    ends = np.cumsum([0, *sizes.tolist()])
    spans = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
    weight = np.zeros((total, classes * (classes - 1) // 2))
    pairs = ((i, j) for i in range(classes) for j in range(i + 1, classes))
    for at, (i, j) in enumerate(pairs):
        weight[spans[i], at] = dual[j - 1, spans[i]]
        weight[spans[j], at] = dual[i, spans[j]]
    return weight


def _of_coefficients(call: Call, x: Rows, labels: np.ndarray) -> tuple[Value, ...]:
    """liblinear's form: a score for each class."""
    weight = call.array("coefficients").astype(np.float64)
    if len(weight) != len(labels) * x.width or not len(weight):
        raise call.damaged(
            f"it has {len(weight):,} coefficients for {len(labels)} classes of {x.width:,} columns."
        )
    product = Contract(x.node(False), np.ascontiguousarray(weight.reshape(len(labels), -1).T))
    node: Node = apply("add", product, _rho(call, 1))
    if len(labels) == 2:
        raise call.unsupported("has two classes and no support vectors, which is not supported.")
    scores = of_node(transformed(node, transform_of(call)), (None, len(labels)))
    return labelled(reduce("argmax", node), labels), scores


OPERATIONS: Mapping[str, Evaluate] = {"SVMRegressor": _regressor, "SVMClassifier": _classifier}
"""By operator of the domain ai.onnx.ml."""
