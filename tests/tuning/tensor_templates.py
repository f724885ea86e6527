"""Tensor programs and templates of tests, importable by worker processes."""

from __future__ import annotations

import os
from typing import Any

from tvm import s_tir, te

from hbtvm.schedules.space import Config, Knob


def matmul(n: int, m: int = 32) -> list[Any]:
    """Return C = A B, with a bias and a relu."""
    A, B, b = (
        te.placeholder(shape, name=name) for shape, name in (((n, n), "A"), ((n, m), "B"), ((m,), "b"))
    )
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    shifted = te.compute((n, m), lambda i, j: C[i, j] + b[j], name="shifted")
    return [A, B, b, te.compute((n, m), lambda i, j: te.max(shifted[i, j], 0.0), name="relu")]


def conv2d(size: int, inputs: int, outputs: int, stride: int = 1) -> list[Any]:
    """Return a 3x3 convolution, NCHW, padded."""
    X, W = (
        te.placeholder((1, inputs, size, size), name="X"),
        te.placeholder((outputs, inputs, 3, 3), name="W"),
    )

    def value(n: Any, c: Any, h: Any, w: Any) -> Any:
        inside = te.all(h >= 1, h <= size, w >= 1, w <= size)
        return te.if_then_else(inside, X[n, c, h - 1, w - 1], te.const(0.0, "float32"))

    padded = te.compute((1, inputs, size + 2, size + 2), value, name="padded")
    r = [te.reduce_axis((0, extent), name=name) for extent, name in ((inputs, "c"), (3, "kh"), (3, "kw"))]
    c, kh, kw = r
    out = (size - 1) // stride + 1
    Y = te.compute(
        (1, outputs, out, out),
        lambda n, o, h, w: te.sum(padded[n, c, h * stride + kh, w * stride + kw] * W[o, c, kh, kw], axis=r),
        name="Y",
    )
    return [X, W, Y]


def pointwise(
    height: int, width: int, inputs: int, outputs: int, stride: int = 1, turned: int = 0
) -> list[Any]:
    """Return a 1x1 convolution, NCHW; `turned`: of an image whose columns are stored first."""
    shape = (width * stride, height * stride) if turned else (height * stride, width * stride)
    X = te.placeholder((1, inputs, *shape), name="X")
    W = te.placeholder((outputs, inputs), name="W")
    c = te.reduce_axis((0, inputs), name="c")

    def value(n: Any, o: Any, h: Any, w: Any) -> Any:
        place = (w, h) if turned else (h * stride, w * stride)
        return te.sum(X[(n, c, *place)] * W[o, c], axis=c)

    return [X, W, te.compute((1, outputs, height, width), value, name="Y")]


def scaled(height: int, width: int, inputs: int) -> list[Any]:
    """Return the sum of images, scaled and cut off at zero."""
    X = te.placeholder((inputs, height, width), name="X")
    scale = te.placeholder((height, width), name="scale")
    c = te.reduce_axis((0, inputs), name="c")
    total = te.compute((height, width), lambda h, w: te.sum(X[c, h, w], axis=c), name="total")
    return [
        X,
        scale,
        te.compute((height, width), lambda h, w: te.max(total[h, w] * scale[h, w], 0.0), name="Y"),
    ]


def doubled(n: int) -> list[Any]:
    """Return y = 2 x."""
    x = te.placeholder((n,), name="x")
    return [x, te.compute((n,), lambda i: x[i] * 2.0, name="y")]


KNOBS = (Knob("kind", ("right", "packed", "wrong", "crash", "error", "slow")),)


def apply_doubled(config: Config, n: int) -> Any:
    """Schedule `doubled`; some configurations are broken in some way."""
    kind = config["kind"]
    if kind == "error":
        raise ValueError("there is no such schedule")
    if kind == "crash":
        os._exit(9)
    if kind == "packed":
        x = te.placeholder((n // 4, 4), name="x")
        y = te.compute((n,), lambda i: x[i % (n // 4), i // (n // 4)] * 2.0, name="y")
        return [x, y], lambda x, y: (x.reshape(4, -1).T.copy(), y)
    x = te.placeholder((n,), name="x")
    function = te.create_prim_func([x, te.compute((n,), lambda i: x[i] * 2.0, name="y")])
    if kind == "wrong":
        function = te.create_prim_func([x, te.compute((n,), lambda i: x[n - 1 - i] * 2.0, name="y")])
    schedule = s_tir.Schedule(function)
    if kind == "right":
        (loop,) = schedule.get_loops(schedule.get_sblock("y"))
        schedule.vectorize(schedule.split(loop, [None, 8])[1])
    return schedule
