"""ATen's composite operators: linear layers and torch's cells for sequences.

Functions without a docstring implement ATen's operators, with the arguments of their schemas; they raise
`ModelError` with the rest of a sentence that begins with the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.arithmetic import pointwise
from hbtvm.recursive.aten.forms import chunk, t
from hbtvm.recursive.aten.products import matmul
from hbtvm.recursive.aten.tensors import Tensor
from hbtvm.recursive.aten.values import Values


def linear(values: Values, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = matmul(values, x, t(values, weight))
    return product if bias is None else pointwise(values, "add", product, bias)


def biased(first: str, second: str) -> Callable[..., Tensor]:
    """Return ``addmm`` or its kin: beta times the first tensor, plus alpha times a product."""

    def apply(values: Values, x: Tensor, beta: float = 1, alpha: float = 1, **factors: Tensor) -> Tensor:
        result = matmul(values, factors[first], factors[second])
        if alpha != 1:
            result = pointwise(values, "mul", result, alpha)
        if beta != 1:
            x = pointwise(values, "mul", x, beta)
        return pointwise(values, "add", x, result)

    return apply


def rnn_cell(function: str) -> Callable[..., Tensor]:
    """Return ``rnn_tanh_cell`` or ``rnn_relu_cell``."""

    def apply(
        values: Values, x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
    ) -> Tensor:
        both = pointwise(values, "add", linear(values, x, w_ih, b_ih), linear(values, hx, w_hh, b_hh))
        return pointwise(values, function, both)

    return apply


def gru_cell(
    values: Values, x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    xs = chunk(values, linear(values, x, w_ih, b_ih), 3, -1)
    hs = chunk(values, linear(values, hx, w_hh, b_hh), 3, -1)
    r, z = (
        pointwise(values, "sigmoid", pointwise(values, "add", from_input, other))
        for from_input, other in zip(xs[:2], hs[:2], strict=True)
    )
    new = pointwise(values, "tanh", pointwise(values, "add", xs[2], pointwise(values, "mul", r, hs[2])))
    kept = pointwise(values, "mul", z, pointwise(values, "sub", hx, new))
    return pointwise(values, "add", new, kept)


def lstm_cell(
    values: Values, x: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any = None,
    b_hh: Any = None,
) -> list[Tensor]:  # fmt: skip
    both = pointwise(values, "add", linear(values, x, w_ih, b_ih), linear(values, hx[0], w_hh, b_hh))
    i, f, g, o = chunk(values, both, 4, -1)
    i, f, o = (pointwise(values, "sigmoid", gate) for gate in (i, f, o))
    new = pointwise(values, "mul", i, pointwise(values, "tanh", g))
    c = pointwise(values, "add", pointwise(values, "mul", f, hx[1]), new)
    return [pointwise(values, "mul", o, pointwise(values, "tanh", c)), c]


def dropout(values: Values, x: Tensor, p: float, train: bool) -> Tensor:
    if train:
        raise ModelError("drops numbers at random; call eval() of the module first")
    return x
