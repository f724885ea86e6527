"""The programs: ResNet-18's convolutions (AutoTVM, table 1), a product, a depthwise convolution, a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te

Tensors = list[Any]


@dataclass(frozen=True)
class Workload:
    """A tensor program.

    `program`, `args`: a Python function that returns `te` tensors, and its arguments.
    `constants`: parameters that may be packed ahead, as PyTorch's weights may.
    `operations`: floating-point operations of a run.
    """

    name: str
    program: Callable[..., Tensors]
    args: tuple[int, ...]
    constants: tuple[str, ...]
    operations: float


def conv2d(size: int, inputs: int, outputs: int, kernel: int, stride: int) -> Tensors:
    """Return a convolution of one square image, NCHW, padded to keep its size (before the stride)."""
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    X = te.placeholder((1, inputs, size, size), name="X")
    W = te.placeholder((outputs, inputs, kernel, kernel), name="W")
    padded = _padded(X, pad) if pad else X
    c = te.reduce_axis((0, inputs), name="c")
    kh, kw = te.reduce_axis((0, kernel), name="kh"), te.reduce_axis((0, kernel), name="kw")
    Y = te.compute(
        (1, outputs, out, out),
        lambda n, o, h, w: te.sum(
            padded[n, c, h * stride + kh, w * stride + kw] * W[o, c, kh, kw], axis=[c, kh, kw]
        ),
        name="Y",
    )
    return [X, W, Y]


def _padded(X: Any, pad: int) -> Any:
    n, c, size, _ = (int(extent) for extent in X.shape)

    def value(n: Any, c: Any, h: Any, w: Any) -> Any:
        inside = te.all(h >= pad, h < size + pad, w >= pad, w < size + pad)
        return te.if_then_else(inside, X[n, c, h - pad, w - pad], te.const(0.0, "float32"))

    return te.compute((n, c, size + 2 * pad, size + 2 * pad), value, name="padded")


def depthwise(size: int, channels: int, kernel: int) -> Tensors:
    """Return a depthwise convolution of stride 1, NCHW, padded to keep its size."""
    X = te.placeholder((1, channels, size, size), name="X")
    W = te.placeholder((channels, kernel, kernel), name="W")
    padded = _padded(X, kernel // 2)
    kh, kw = te.reduce_axis((0, kernel), name="kh"), te.reduce_axis((0, kernel), name="kw")
    Y = te.compute(
        (1, channels, size, size),
        lambda n, o, h, w: te.sum(padded[n, o, h + kh, w + kw] * W[o, kh, kw], axis=[kh, kw]),
        name="Y",
    )
    return [X, W, Y]


def matmul(n: int) -> Tensors:
    """Return a product of two square matrices."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def lstm_cell(hidden: int) -> Tensors:
    """Return an LSTM cell for one row, with as many inputs as hidden units; gates i, f, g, o as PyTorch's."""
    x, h, c = (te.placeholder((hidden,), name=name) for name in ("x", "h", "c"))
    W = te.placeholder((4, hidden, 2 * hidden), name="W")
    b = te.placeholder((4, hidden), name="b")
    both = te.compute((2 * hidden,), lambda k: te.if_then_else(k < hidden, x[k], h[k - hidden]), name="both")
    k = te.reduce_axis((0, 2 * hidden), name="k")
    gates = te.compute((4, hidden), lambda gate, j: te.sum(W[gate, j, k] * both[k], axis=k), name="gates")

    def sigmoid(gate: int, j: Any) -> Any:
        return te.const(1.0, "float32") / (te.const(1.0, "float32") + te.exp(-(gates[gate, j] + b[gate, j])))

    cell = te.compute(
        (hidden,),
        lambda j: sigmoid(1, j) * c[j] + sigmoid(0, j) * te.tanh(gates[2, j] + b[2, j]),
        name="cell",
    )
    state = te.compute((hidden,), lambda j: sigmoid(3, j) * te.tanh(cell[j]), name="state")
    return [x, h, c, W, b, state, cell]


TABLE = (
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 64, 1, 1), (56, 64, 128, 3, 2), (56, 64, 128, 1, 2),
    (28, 128, 128, 3, 1), (28, 128, 256, 3, 2), (28, 128, 256, 1, 2), (14, 256, 256, 3, 1),
    (14, 256, 512, 3, 2), (14, 256, 512, 1, 2), (7, 512, 512, 3, 1),
)  # fmt: skip
"""Convolutions C1 to C12: size of the image, input and output channels, kernel, stride."""


def _convolution(number: int) -> Workload:
    size, inputs, outputs, kernel, stride = TABLE[number]
    out = (size - 1) // stride + 1
    operations = 2.0 * out * out * inputs * outputs * kernel * kernel
    return Workload(f"C{number + 1}", conv2d, TABLE[number], ("W",), operations)


WORKLOADS = {
    workload.name: workload
    for workload in (
        *map(_convolution, range(len(TABLE))),
        Workload("Matmul-1024", matmul, (1024,), (), 2.0 * 1024**3),
        Workload("depthwise", depthwise, (112, 32, 3), ("W",), 2.0 * 112 * 112 * 32 * 9),
        Workload("LSTM", lstm_cell, (512,), ("W",), 2.0 * 4 * 512 * 1024),
    )
}
