"""ATen's matrix products and embeddings.

Functions without a docstring implement ATen's operators, with the arguments of their schemas; they raise
`ModelError` with the rest of a sentence that begins with the operator.
"""

from __future__ import annotations

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.aligning import aligned, merged
from hbtvm.recursive.aten.tensors import Tensor, axis_of, numbers, sizes, tensor
from hbtvm.recursive.aten.values import Values
from hbtvm.recursive.cell import Input, Value

MOST_PRODUCTS = 256  # most products of one operator


def product(values: Values, x: np.ndarray, y: np.ndarray, name: str = "") -> np.ndarray:
    """Multiply matrices (m, k) and (k, n) of references (int64) or constants (float32); returns (m, n).

    Prefers a weight times a vector. Cells lack transposition, but references can be transposed, so that the
    product of the transposed matrices serves as well.
    """
    constant = x.dtype.kind == "f", y.dtype.kind == "f"
    if all(constant):
        result: np.ndarray = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
        return result
    plain, turned = (
        sum(0 if known else values.pieces(factor) for known, factor in zip(constant, pair, strict=True))
        for pair in ((x, y), (x.T, y.T))
    )
    rows, inner, columns = (*x.shape, y.shape[1])
    if any(constant) and min(plain, turned) > 1:
        count = rows if constant[1] else columns
        if 1 < count <= MOST_PRODUCTS:
            if constant[1]:
                return np.concatenate([product(values, x[i : i + 1], y, name) for i in range(count)])
            return np.concatenate([product(values, x, y[:, i : i + 1], name) for i in range(count)], axis=1)
    if not any(constant) and inner == 1:
        vectors = values.value_of(x, (rows,)), values.value_of(y, (columns,))
        return values.refs(values.apply("outer", vectors))
    # A vector is cheaper as the second factor.
    turns = turned < plain or (turned == plain and (columns > 1 and (rows == 1 or constant[1])))
    a, b = (y.T, x.T) if turns else (x, y)
    left = values.weight(a, name) if a.dtype.kind == "f" else values.value_of(a, a.shape)
    shape = b.shape if b.shape[1] > 1 else b.shape[:1]
    right = values.weight(b.reshape(shape), name) if b.dtype.kind == "f" else values.value_of(b, shape)
    number = values.apply("matmul", (left, right))
    refs = values.refs(number).reshape(a.shape[0], b.shape[1])
    return refs.T if turns else refs


def matmul(values: Values, x: Tensor, other: Tensor) -> Tensor:
    if not x.axes or not other.axes:
        raise ModelError("multiplies a matrix by a number")
    one_row, one_column = len(x.axes) == 1, len(other.axes) == 1
    if one_row:
        x = tensor(x.data, ((), *x.axes), x)
    if one_column:
        other = tensor(other.data, (*other.axes, ()), other)
    product_ = _products(values, x, other)
    axes = list(product_.axes)
    if one_column:
        axes.pop(-1)
    if one_row:
        axes.pop(len(product_.axes) - 2)
    return tensor(product_.data, axes, product_)


def mm(values: Values, x: Tensor, mat2: Tensor) -> Tensor:
    return matmul(values, x, mat2)


def mv(values: Values, x: Tensor, vec: Tensor) -> Tensor:
    return matmul(values, x, vec)


def embedding(values: Values, weight: Tensor, indices: Tensor, **_: object) -> Tensor:
    if indices.number < 0:
        raise ModelError("picks rows of an embedding by something other than a node's number")
    if not weight.constant or len(weight.axes) != 2:
        raise ModelError("picks rows of something that is not a weight")
    count, width = (numbers(axis) for axis in weight.axes)
    name = list(values.inputs)[indices.number]
    known = values.inputs[name]
    if known.size not in (0, count):
        raise ModelError(
            f"picks rows of a weight with {count} by input {name!r}, and of another with {known.size}"
        )
    values.inputs[name] = Input("number", count, known.optional)
    name_of = values.name_of(weight.data.reshape(count, width), weight.name)
    number = values.put(Value("embed", shape=(width,), name=name_of, start=indices.number))
    return tensor(values.refs(number), (*indices.axes, axis_of(width)))


def _products(values: Values, x: Tensor, y: Tensor) -> Tensor:
    """Multiply matrices of the last two axes."""
    if "c" in x.axes[-1]:
        x = values.unrolled(x)
    if "c" in y.axes[-2]:
        y = values.unrolled(y)
    if "b" in x.axes[-1] or "b" in y.axes[-2]:
        raise ModelError("multiplies along the nodes of the batch")
    if numbers(x.axes[-1]) != numbers(y.axes[-2]):
        raise ModelError("multiplies matrices whose sizes do not fit")
    if "c" in x.axes[-2] and "c" in y.axes[-1]:
        x, y = values.unrolled(x), values.unrolled(y)
    x, y = aligned(values, [x, y], (-1, -2))
    axes = (*x.axes[:-1], y.axes[-1])
    atoms = [atom for axis in axes for atom in axis]
    if atoms.count("c") > 1:
        return _products(values, values.unrolled(x), values.unrolled(y))
    if atoms.count("b") > 1:
        raise ModelError("mixes nodes of the batch")
    name = x.name or y.name
    for factor in (x, y):
        if factor.number >= 0:
            values.referring(factor)  # raises
    a, b = merged(x, 2), merged(y, 2)
    if len(a) > MOST_PRODUCTS and not (x.constant and y.constant):
        raise ModelError(f"makes {len(a)} products for a node; expected at most {MOST_PRODUCTS}")
    if len(a) > 1 and y.constant and (b == b[0]).all():
        result = product(values, a.reshape(-1, a.shape[2]), b[0], name)
    else:
        result = np.stack([product(values, left, other, name) for left, other in zip(a, b, strict=True)])
    return tensor(result.reshape(sizes(axes)), axes)
