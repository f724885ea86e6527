"""Operators that change the shape, and with it maybe the order of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hbtvm.frontends.onnx.broadcasting import stretched
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.values import MOST_COLUMNS, ROWS, Rows, Shape, Value, bounded, few_columns, of_node
from hbtvm.operators.base import constant


def axis_of(call: Call, axis: int, rank: int) -> int:
    """Return an axis, counted from the front.

    Raises `ModelError` if there is none.
    """
    if not -rank <= axis < rank:
        raise call.damaged(f"there is no axis {axis} of {rank}.")
    return axis % rank


def axes_of(call: Call, at: int, rank: int) -> list[int] | None:
    """Axes that an attribute (older versions) or an input names; None if neither does."""
    if "axes" in call.operation.attributes:
        axes = call.integers("axes")
    elif call.has(at):
        axes = call.constant(at, "axes").ravel()
    else:
        return None
    return [axis_of(call, int(axis), rank) for axis in axes.tolist()]


def _extents(call: Call, values: np.ndarray) -> list[int]:
    """A shape that is an input; `ROWS` for the rows."""
    shape = [int(extent) for extent in values.ravel().tolist()]
    if len(shape) > 16 or any(extent > MOST_COLUMNS and extent != ROWS for extent in shape):
        raise call.unsupported(f"asks for the shape {str(shape)[:80]}, which is not supported.")
    return shape


def _reshape(call: Call) -> Value:
    x = call.value(0)
    wanted = _extents(call, call.constant(1, "shape") if call.has(1) else call.integers("shape"))
    if isinstance(x, np.ndarray):
        kept = [x.shape[i] if extent == 0 and i < x.ndim else extent for i, extent in enumerate(wanted)]
        return x.reshape(kept)
    return reshaped(call, x, wanted)


def reshaped(call: Call, x: Rows, wanted: Sequence[int]) -> Rows:
    """Return rows in another shape: 0 keeps an extent, -1 stands for the remaining extent."""
    shape: list[int | None] = []
    for i, extent in enumerate(wanted):
        if extent == 0 and (i >= len(x.shape) or x.unfolded):
            raise call.damaged(f"it keeps the extent {i} of {len(x.shape)}.")
        shape.append(None if extent == ROWS else x.shape[i] if extent == 0 else extent)
    known = math.prod(extent for extent in shape if extent not in (None, -1))
    if shape.count(-1) > 1 or shape.count(None) > 1:
        raise call.damaged(f"it makes the shape {shape}.")
    if -1 in shape:
        at = shape.index(-1)
        if None in shape:
            shape[at] = x.width // known if known else 0
        else:
            shape[at] = None
    inner = [extent for extent in shape if extent is not None]
    lead = math.prod(x.shape[: x.axis])  # type: ignore[arg-type]
    if None not in shape or math.prod(inner) != x.width:
        raise call.unsupported(
            f"makes the shape {tuple(wanted)} of {x.width} columns: rows are mixed, which is not supported."
        )
    if math.prod(inner[: shape.index(None)]) != lead:
        raise call.unsupported("moves the axis of the rows, which is not supported.")
    return same_columns(x, tuple(shape))


def same_columns(x: Rows, shape: Shape) -> Rows:
    """Return the same columns in another shape."""
    return Rows(shape, x.dtype, x.content, x.levels, x.origin, _node=x._node)


def picked(x: Rows, grid: np.ndarray) -> Rows:
    """Return some columns; `grid` has their indices, with the extent 1 in place of the rows."""
    shape: list[int | None] = list(grid.shape)
    shape[x.axis] = None
    return x.take(grid, shape)


def _flatten(call: Call) -> Value:
    x = call.value(0)
    axis = call.whole("axis", 1)
    if isinstance(x, np.ndarray):
        axis = axis if axis == x.ndim else axis_of(call, axis, max(1, x.ndim))
        return x.reshape(math.prod(x.shape[:axis]), -1)
    axis = axis if axis == len(x.shape) else axis_of(call, axis, len(x.shape))
    parts = x.shape[:axis], x.shape[axis:]
    wanted = [ROWS if None in part else math.prod(part) for part in parts]  # type: ignore[arg-type]
    return reshaped(call, x, wanted)


def _squeeze(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    axes = axes_of(call, 1, rank)
    if axes is None:
        axes = [i for i, extent in enumerate(x.shape) if extent == 1]
    if any(x.shape[i] != 1 for i in axes):
        raise call.unsupported(f"drops axes of the shape {x.shape} that hold several values.")
    shape = [extent for i, extent in enumerate(x.shape) if i not in axes]
    return x.reshape(shape) if isinstance(x, np.ndarray) else same_columns(x, tuple(shape))


def _unsqueeze(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    count = (
        len(call.integers("axes")) if "axes" in call.operation.attributes else call.constant(1, "axes").size
    )
    axes = axes_of(call, 1, rank + count) or []
    shape: list[int | None] = list(x.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return x.reshape(shape) if isinstance(x, np.ndarray) else same_columns(x, tuple(shape))


def _transpose(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    order = call.integers("perm").tolist() or list(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise call.damaged(f"it orders {rank} axes as {order}.")
    if isinstance(x, np.ndarray):
        return np.transpose(x, order)
    return x.take(x.grid().transpose(order), [x.shape[i] for i in order])


def _expand(call: Call) -> Value:
    return _stretched(call, call.value(0), _extents(call, call.constant(1, "shape")))


def _stretched(call: Call, x: Value, wanted: Sequence[int]) -> Value:
    """Broadcast a tensor to a shape, as ``Expand`` and ``ConstantOfShape``."""
    has_rows = ROWS in wanted or isinstance(x, Rows)
    if not has_rows:
        assert isinstance(x, np.ndarray)
        shape = np.broadcast_shapes(x.shape, tuple(wanted))
        bounded(math.prod(shape))
        return np.broadcast_to(x, shape)
    if wanted.count(ROWS) > 1:
        raise call.unsupported("makes a tensor of rows by rows, which is not supported.")
    if isinstance(x, np.ndarray):
        inner = [1 if extent == ROWS else extent for extent in wanted]
        few_columns(math.prod(np.broadcast_shapes(x.shape, tuple(inner))))
        wide = np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(inner)))
        shape_: list[int | None] = list(wide.shape)
        shape_[len(shape_) - len(wanted) + list(wanted).index(ROWS)] = None
        return of_node(constant(wide.astype(np.float64)), shape_, x.dtype.name)
    shape_ = [*(1,) * (len(wanted) - len(x.shape)), *x.shape]
    for i, extent in enumerate(wanted, len(shape_) - len(wanted)):
        if extent != 1 and shape_[i] is not None:
            shape_[i] = extent
    few_columns(math.prod(extent for extent in shape_ if extent is not None))
    return stretched(x, tuple(shape_))


def _constant_of_shape(call: Call) -> Value:
    value = call.operation.attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise call.damaged("its value is not a single number.")
    return _stretched(call, value.reshape(()), _extents(call, call.constant(0, "shape")))


def _tile(call: Call) -> Value:
    x, times = call.value(0), _extents(call, call.constant(1, "repeats"))
    if isinstance(x, np.ndarray):
        bounded(x.size * math.prod(times))
        return np.tile(x, times)
    if len(times) != len(x.shape) or times[x.axis] != 1 or min(times) < 0:
        raise call.unsupported(f"repeats the shape {x.shape} {times} times, which is not supported.")
    few_columns(x.width * math.prod(times))
    return picked(x, np.tile(x.grid(), times))


def _shape(call: Call) -> Value:
    x = call.value(0)
    sizes = np.array([ROWS if extent is None else extent for extent in x.shape], np.int64)
    start, end = call.whole("start", 0), call.whole("end", len(sizes))
    return sizes[start:end]


def _size(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, Rows):
        raise call.unsupported("counts all values of the rows, which is not supported.")
    return np.array(x.size, np.int64)


def _constant(call: Call) -> Value:
    attributes = call.operation.attributes
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints", "value_string"):
        value = attributes.get(name)
        if value is not None:
            if isinstance(value, float):
                return np.array(value, np.float32)
            if isinstance(value, int):
                return np.array(value, np.int64)
            if isinstance(value, str):
                return np.array(value, object)
            if isinstance(value, np.ndarray):
                return value
    texts = call.texts("value_strings")
    if not texts:
        raise call.unsupported("has a value of a kind that is not supported.")
    return np.array(texts, object)


def _range(call: Call) -> Value:
    start, limit, delta = (float(call.constant(i, "bounds").reshape(-1)[0]) for i in range(3))
    if not delta or not math.isfinite((limit - start) / delta):
        raise call.damaged("its step is 0.")
    bounded(int((limit - start) / delta))
    return np.arange(start, limit, delta).astype(call.constant(0, "bounds").dtype)


OPERATIONS: Mapping[str, Evaluate] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Tile": _tile,
    "Shape": _shape,
    "Size": _size,
    "Constant": _constant,
    "Range": _range,
}
"""By operator of ONNX's own domain."""
