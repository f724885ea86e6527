"""Operators that choose, order and join values: of rows, that is done to the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.broadcasting import flat
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations.pointwise import joined
from hbtvm.frontends.onnx.values import MOST_COLUMNS, ROWS, Rows, Shape, Value, bounded, of_node
from hbtvm.graph.table import Table
from hbtvm.operators.base import constant
from hbtvm.operators.distances import Take
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import Repeat, concat, reduce
from hbtvm.operators.tables import OneHot


def axis_of(call: Call, axis: int, rank: int) -> int:
    """An axis, counted from the front.

    Raises
    ------
    ModelError
        If there is none.
    """
    if not -rank <= axis < rank:
        raise call.damaged(f"there is no axis {axis} of {rank}.")
    return axis % rank


def axes_of(call: Call, at: int, rank: int, attribute: str = "axes") -> list[int] | None:
    """Axes that an attribute (older versions) or an input names; None if neither does."""
    if attribute in call.operation.attributes:
        given = call.integers(attribute)
    elif call.has(at):
        given = call.constant(at, attribute).ravel()
    else:
        return None
    return [axis_of(call, int(one), rank) for one in given.tolist()]


def _extents(call: Call, values: np.ndarray) -> list[int]:
    """A shape that is an input; `ROWS` for the rows."""
    found = [int(one) for one in values.ravel().tolist()]
    if len(found) > 16 or any(one > MOST_COLUMNS and one != ROWS for one in found):
        raise call.unsupported(f"asks for the shape {str(found)[:80]}, which is not supported.")
    return found


def _reshape(call: Call) -> Value:
    x = call.value(0)
    wanted = _extents(call, call.constant(1, "shape") if call.has(1) else call.integers("shape"))
    if isinstance(x, np.ndarray):
        kept = [x.shape[i] if one == 0 and i < x.ndim else one for i, one in enumerate(wanted)]
        return x.reshape(kept)
    return reshaped(call, x, wanted)


def reshaped(call: Call, x: Rows, wanted: Sequence[int]) -> Rows:
    """Rows in another shape: 0 keeps an extent, -1 is what is left."""
    shape: list[int | None] = []
    for i, one in enumerate(wanted):
        if one == 0 and (i >= len(x.shape) or x.unfolded):
            raise call.damaged(f"it keeps the extent {i} of {len(x.shape)}.")
        shape.append(None if one == ROWS else x.shape[i] if one == 0 else one)
    known = math.prod(one for one in shape if one not in (None, -1))
    if shape.count(-1) > 1 or shape.count(None) > 1:
        raise call.damaged(f"it makes the shape {shape}.")
    if -1 in shape:
        at = shape.index(-1)
        if None in shape:
            shape[at] = x.width // known if known else 0
        else:
            shape[at] = None
    inner = [one for one in shape if one is not None]
    lead = math.prod(x.shape[: x.axis])  # type: ignore[arg-type]
    if None not in shape or math.prod(inner) != x.width:
        raise call.unsupported(
            f"makes the shape {tuple(wanted)} of {x.width} columns: rows are mixed, which is not supported."
        )
    if math.prod(inner[: shape.index(None)]) != lead:
        raise call.unsupported("moves the axis of the rows, which is not supported.")
    return _same(x, tuple(shape))


def _same(x: Rows, shape: Shape) -> Rows:
    """The same columns in another shape."""
    return Rows(shape, x.dtype, x.content, x.levels, x.origin, _node=x._node)


def _flatten(call: Call) -> Value:
    x = call.value(0)
    axis = call.whole("axis", 1)
    if isinstance(x, np.ndarray):
        axis = axis if axis == x.ndim else axis_of(call, axis, max(1, x.ndim))
        return x.reshape(math.prod(x.shape[:axis]), -1)
    axis = axis if axis == len(x.shape) else axis_of(call, axis, len(x.shape))
    parts = x.shape[:axis], x.shape[axis:]
    wanted = [ROWS if None in one else math.prod(one) for one in parts]  # type: ignore[arg-type]
    return reshaped(call, x, wanted)


def _squeeze(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    axes = axes_of(call, 1, rank)
    if axes is None:
        axes = [i for i, one in enumerate(x.shape) if one == 1]
    if any(x.shape[i] != 1 for i in axes):
        raise call.unsupported(f"drops axes of the shape {x.shape}, which are not of one value.")
    shape = [one for i, one in enumerate(x.shape) if i not in axes]
    return x.reshape(shape) if isinstance(x, np.ndarray) else _same(x, tuple(shape))  # type: ignore[arg-type]


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
    return x.reshape(shape) if isinstance(x, np.ndarray) else _same(x, tuple(shape))  # type: ignore[arg-type]


def _transpose(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    order = call.integers("perm").tolist() or list(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise call.damaged(f"it orders {rank} axes as {order}.")
    if isinstance(x, np.ndarray):
        return x.transpose(order)
    return x.take(x.grid().transpose(order), [x.shape[i] for i in order])


def _concat(call: Call) -> Value:
    values = [call.value(i) for i in range(len(call.inputs))]
    if not values:
        raise call.damaged("it joins nothing.")
    if all(isinstance(one, np.ndarray) for one in values):
        bounded(sum(one.size for one in values))  # type: ignore[union-attr]
        return np.concatenate(values, axis=call.whole("axis", 0))  # type: ignore[arg-type]
    first = next(one for one in values if isinstance(one, Rows))
    axis = axis_of(call, call.whole("axis", 1), len(first.shape))
    if axis == first.axis:
        return _stacked(call, values)
    return join(call, values, axis)


def _stacked(call: Call, values: Sequence[Value]) -> Rows:
    """Single columns one below another, which another shape makes sense of."""
    parts: list[Value] = []
    for one in values:
        if not isinstance(one, Rows) or one.width != 1 or one.axis:
            raise call.unsupported("joins tensors row by row, which is not supported.")
        parts.append(reshaped(call, one, [1, ROWS]))
    result = join(call, parts, 0)
    result.unfolded = True
    return result


def join(call: Call, values: Sequence[Value], axis: int) -> Rows:
    """Tensors side by side along an axis that is not the rows'."""
    first = next(one for one in values if isinstance(one, Rows))
    parts: list[Rows] = []
    for one in values:
        if isinstance(one, np.ndarray):
            shape = list(first.shape)
            shape[axis] = one.shape[axis - one.ndim + len(shape)] if one.ndim == len(shape) else 1
            one = of_node(constant(np.broadcast_to(flat(one, tuple(shape)), Rows_width(shape))), shape)
        if len(one.shape) != len(first.shape) or one.axis != first.axis:
            raise call.damaged("it joins tensors of different ranks.")
        parts.append(one)
    offsets = np.cumsum([0, *(one.width for one in parts)])
    grids = [one.grid() + offset for one, offset in zip(parts, offsets, strict=False)]
    order = np.concatenate(grids, axis=axis)
    shape = list(first.shape)
    shape[axis] = order.shape[axis]
    dtype, levels = first.dtype, _levels(call, parts)
    if levels is not None:
        parts = [Rows(one.shape, "int64", one.content) for one in parts if one.width]
        dtype = "int64"
    content: Any
    if dtype == "str":
        tables = [one.content for one in parts]
        if not all(isinstance(one, Table) for one in tables):
            raise call.unsupported("joins strings of different kinds, which is not supported.")
        content = Table(tuple(column for one in tables for column in one.columns))  # type: ignore[union-attr]
        beside = Rows((None, len(content)), dtype, content)
    else:
        beside = joined(parts, (None, int(offsets[-1])), dtype)
    result = beside.take(order, tuple(shape))
    result.levels, result.dtype = levels, first.dtype
    return result


def Rows_width(shape: Sequence[int | None]) -> int:
    """Columns of a shape."""
    return math.prod(one for one in shape if one is not None)


def _levels(call: Call, parts: Sequence[Rows]) -> np.ndarray | None:
    """The values that the positions in all parts stand for, where that is how strings are held."""
    if parts[0].dtype != "str":
        return None
    known = [one.levels for one in parts if one.width]
    if all(one is None for one in known):
        return None
    if any(one is None or not np.array_equal(one, known[0]) for one in known):  # type: ignore[arg-type]
        raise call.unsupported("joins strings of different kinds, which is not supported.")
    return known[0]


def _slice(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    if call.version < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes, steps = call.integers("axes"), np.ones(len(starts), np.int64)
        axes = axes if axes.size else np.arange(len(starts))
    else:
        starts, ends = call.constant(1, "starts").ravel(), call.constant(2, "ends").ravel()
        axes = call.constant(3, "axes").ravel() if call.has(3) else np.arange(len(starts))
        steps = call.constant(4, "steps").ravel() if call.has(4) else np.ones(len(starts), np.int64)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise call.damaged("its starts, ends, axes and steps are not as many as each other.")
    chosen: list[slice] = [slice(None)] * rank
    for axis, start, end, step in zip(
        axes.tolist(), starts.tolist(), ends.tolist(), steps.tolist(), strict=True
    ):
        if step == 0:
            raise call.damaged("a step is 0.")
        at = axis_of(call, axis, rank)
        # Backwards, an end before the first value takes it in.
        stop = None if step < 0 and end < -(1 << 31) else int(end)
        chosen[at] = slice(int(start), stop, int(step))
    if isinstance(x, np.ndarray):
        return x[tuple(chosen)]
    if chosen[x.axis] not in (
        slice(None),
        *(slice(0, end, 1) for end in (chosen[x.axis].stop,) if (end or 0) >= 1 << 31),
    ):
        raise call.unsupported("takes some of the rows, which is not supported.")
    chosen[x.axis] = slice(None)
    return _picked(x, x.grid()[tuple(chosen)])


def _picked(x: Rows, grid: np.ndarray) -> Rows:
    """Some columns, given as a tensor with the extent 1 in place of the rows."""
    shape: list[int | None] = list(grid.shape)
    shape[x.axis] = None
    return x.take(grid, shape)


def _split(call: Call) -> tuple[Value, ...]:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    axis = axis_of(call, call.whole("axis", 0), rank)
    extent = x.shape[axis]
    if extent is None:
        raise call.unsupported("splits the rows, which is not supported.")
    parts = len(call.operation.outputs)
    if call.has(1) or "split" in call.operation.attributes:
        sizes = (call.constant(1, "split") if call.has(1) else call.integers("split")).ravel().tolist()
    else:
        each = -(-extent // parts)
        sizes = [max(0, min(each, extent - i * each)) for i in range(parts)]
    if sum(sizes) != extent or min(sizes, default=0) < 0 or len(sizes) != parts:
        raise call.damaged(f"it splits {extent} values into {str(sizes)[:60]}.")
    ends = np.cumsum(sizes)[:-1]
    if isinstance(x, np.ndarray):
        return tuple(np.split(x, ends, axis))
    return tuple(_picked(x, grid) for grid in np.split(x.grid(), ends, axis))


def _gather(call: Call) -> Value:
    data, index = call.value(0), call.value(1)
    rank = data.ndim if isinstance(data, np.ndarray) else len(data.shape)
    axis = axis_of(call, call.whole("axis", 0), rank)
    if isinstance(index, np.ndarray):
        if isinstance(data, np.ndarray):
            bounded(index.size * max(1, data.size // max(1, data.shape[axis])))
            return np.take(data, index.astype(np.int64), axis)
        if axis == data.axis:
            raise call.unsupported("takes some of the rows, which is not supported.")
        grid = np.take(data.grid(), index.astype(np.int64), axis)
        shape: list[int | None] = list(data.shape)
        shape[axis : axis + 1] = index.shape
        return data.take(grid, shape)
    if isinstance(data, Rows):
        raise call.unsupported(
            "takes values by positions that both depend on the rows, which is not supported."
        )
    if axis:
        raise call.unsupported(f"takes values along the axis {axis} by the rows, which is not supported.")
    return looked_up(index, data, (*index.shape, *data.shape[1:]))


def looked_up(index: Rows, data: np.ndarray, shape: Shape) -> Rows:
    """Entries of a constant, shape (T, ...), by rows that hold positions."""
    dtype = "str" if data.dtype == object else data.dtype.name
    width = math.prod(data.shape[1:])
    positions = index.numbers().node()
    if width == 1:
        if len(data) == 0:
            raise ValueError("a table without entries")
        levels = data.reshape(len(data))
        # Positions from behind.
        return Rows(shape, dtype, _from_front(positions, len(levels)), levels)
    table = data.reshape(len(data), width).astype(np.float64)
    node = Take(_from_front(positions, len(table)), table)
    # A table's column after another, for all positions each: the other way around is wanted.
    order = np.arange(node.width).reshape(width, index.width).T
    return of_node(node, (None, node.width), dtype).take(order, shape)


def _from_front(positions: Any, count: int) -> Any:
    """Positions, of which negative ones count from the end."""
    if positions.kind in ("reduce", "top_k", "select", "take"):
        return positions
    return apply("where", apply("less", positions, 0.0), apply("add", positions, float(count)), positions)


def _gather_elements(call: Call) -> Value:
    data, index = call.value(0), call.value(1)
    if isinstance(data, np.ndarray) and isinstance(index, np.ndarray):
        return np.take_along_axis(data, index.astype(np.int64), call.whole("axis", 0))
    if not isinstance(data, Rows):
        if data.ndim == 2 and data.shape[0] == 1 and isinstance(index, Rows):
            return looked_up(index, data[0], index.shape)
        raise call.unsupported("takes elements of a constant by the rows, which is not supported.")
    axis = axis_of(call, call.whole("axis", 0), len(data.shape))
    if isinstance(index, np.ndarray) or len(data.shape) != 2 or axis == data.axis or data.axis != index.axis:
        raise call.unsupported("takes elements in a way that is not supported.")
    count, among = index.width, data.width
    positions = Repeat(index.numbers().node(), among)
    hot = apply("equal", positions, np.tile(np.arange(among, dtype=np.float64), count))
    # Not a product, lest infinities that are not asked for become NaN.
    chosen = apply("where", hot, Repeat(data.node(), count, tiled=True), 0.0)
    return of_node(reduce("sum", chosen, count), index.shape, data.dtype)


def _expand(call: Call) -> Value:
    return _stretched(call, call.value(0), _extents(call, call.constant(1, "shape")))


def _stretched(call: Call, x: Value, wanted: Sequence[int]) -> Value:
    """A tensor stretched to a shape, as ``Expand`` and ``ConstantOfShape`` do."""
    has_rows = ROWS in wanted or isinstance(x, Rows)
    if not has_rows:
        assert isinstance(x, np.ndarray)
        shape = np.broadcast_shapes(x.shape, tuple(wanted))
        bounded(math.prod(shape))
        return np.broadcast_to(x, shape)
    if wanted.count(ROWS) > 1:
        raise call.unsupported("makes a tensor of rows by rows, which is not supported.")
    if isinstance(x, np.ndarray):
        inner = [1 if one == ROWS else one for one in wanted]
        wide = np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(inner)))
        shape_: list[int | None] = list(wide.shape)
        shape_[len(shape_) - len(wanted) + list(wanted).index(ROWS)] = None
        bounded(wide.size)
        return of_node(constant(wide.astype(np.float64)), shape_, x.dtype.name)
    from hbtvm.frontends.onnx.broadcasting import stretched

    shape_ = [1] * (len(wanted) - len(x.shape)) + list(x.shape)
    for i, one in enumerate(wanted, len(shape_) - len(wanted)):
        if one != 1 and shape_[i] is not None:
            shape_[i] = one
    return stretched(x, tuple(shape_))


def _constant_of_shape(call: Call) -> Value:
    value = call.operation.attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise call.damaged("its value is not one number.")
    return _stretched(call, value.reshape(()), _extents(call, call.constant(0, "shape")))


def _tile(call: Call) -> Value:
    x, times = call.value(0), _extents(call, call.constant(1, "repeats"))
    if isinstance(x, np.ndarray):
        bounded(x.size * math.prod(times))
        return np.tile(x, times)
    if len(times) != len(x.shape) or times[x.axis] != 1 or min(times) < 0:
        raise call.unsupported(f"repeats the shape {x.shape} {times} times, which is not supported.")
    if x.width * math.prod(times) > MOST_COLUMNS:
        raise call.unsupported(
            f"makes {x.width * math.prod(times):,} columns; at most {MOST_COLUMNS:,} are supported."
        )
    return _picked(x, np.tile(x.grid(), times))


def _shape(call: Call) -> Value:
    x = call.value(0)
    found = np.array([ROWS if one is None else one for one in x.shape], np.int64)
    start, end = call.whole("start", 0), call.whole("end", len(found))
    return found[start:end]


def _size(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, Rows):
        raise call.unsupported("counts all values of the rows, which is not supported.")
    return np.array(x.size, np.int64)


def _constant(call: Call) -> Value:
    attributes = call.operation.attributes
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints", "value_string"):
        found = attributes.get(name)
        if found is not None:
            if isinstance(found, float):
                return np.array(found, np.float32)
            if isinstance(found, int):
                return np.array(found, np.int64)
            if isinstance(found, str):
                return np.array(found, object)
            if isinstance(found, np.ndarray):
                return found
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


def _one_hot(call: Call) -> Value:
    index = call.rows().numbers()
    depth = int(call.constant(1, "depth").reshape(-1)[0])
    off, on = call.constant(2, "values").astype(np.float64).ravel().tolist()
    if not 0 < depth * index.width <= MOST_COLUMNS:
        raise call.unsupported(f"makes {depth} columns of each, which is not supported.")
    rank = len(index.shape) + 1
    axis = axis_of(call, call.whole("axis", -1), rank)
    node = _from_front(index.node(), depth)
    column = np.repeat(np.arange(index.width, dtype=np.int32), depth)
    hot = OneHot(node, column, np.tile(np.arange(depth, dtype=np.float64), index.width))
    values = apply("where", hot, on, off) if (off, on) != (0.0, 1.0) else hot
    result = of_node(values, (*index.shape, depth), call.constant(2, "values").dtype.name)
    if axis == rank - 1:
        return result
    order = [*range(rank - 1)]
    order.insert(axis, rank - 1)
    return result.take(result.grid().transpose(order), [result.shape[i] for i in order])


OPERATIONS: Mapping[str, Evaluate] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Tile": _tile,
    "Shape": _shape,
    "Size": _size,
    "Constant": _constant,
    "Range": _range,
    "OneHot": _one_hot,
}
"""By operator of ONNX's own domain."""

__all__ = ["OPERATIONS", "axes_of", "axis_of", "concat", "join", "looked_up", "reshaped"]
