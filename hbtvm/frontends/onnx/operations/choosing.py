"""Operators that select and join values: columns of the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.broadcasting import flat
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.joining import Targets, joined, mapped
from hbtvm.frontends.onnx.operations.shapes import axis_of, picked, reshaped
from hbtvm.frontends.onnx.values import MOST_COLUMNS, ROWS, Rows, Shape, Value, bounded, few_columns, of_node
from hbtvm.graph.columns.table import Table
from hbtvm.operators.base import constant
from hbtvm.operators.distances import Take
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import Repeat, reduce
from hbtvm.operators.tables import OneHot


def _concat(call: Call) -> Value:
    values = [call.value(i) for i in range(len(call.inputs))]
    if not values:
        raise call.damaged("it joins nothing.")
    if all(isinstance(value, np.ndarray) for value in values):
        bounded(sum(value.size for value in values if isinstance(value, np.ndarray)))
        return np.concatenate(values, axis=call.whole("axis", 0))  # type: ignore[arg-type]
    first = next(value for value in values if isinstance(value, Rows))
    axis = axis_of(call, call.whole("axis", 1), len(first.shape))
    if axis == first.axis:
        return _stacked(call, values)
    return join(call, values, axis)


def _stacked(call: Call, values: Sequence[Value]) -> Rows:
    """Join single columns row by row; a later reshape resolves the result."""
    parts: list[Value] = []
    for value in values:
        if not isinstance(value, Rows) or value.width != 1 or value.axis:
            raise call.unsupported("joins tensors row by row, which is not supported.")
        parts.append(reshaped(call, value, [1, ROWS]))
    result = join(call, parts, 0)
    result.unfolded = True
    return result


def join(call: Call, values: Sequence[Value], axis: int) -> Rows:
    """Join tensors along an axis other than the rows'."""
    first = next(value for value in values if isinstance(value, Rows))
    parts: list[Rows] = []
    for value in values:
        if isinstance(value, np.ndarray):
            bounded(value.size)
            shape = list(first.shape)
            shape[axis] = value.shape[axis - value.ndim + len(shape)] if value.ndim == len(shape) else 1
            value = of_node(constant(np.broadcast_to(flat(value, tuple(shape)), columns_of(shape))), shape)
        if len(value.shape) != len(first.shape) or value.axis != first.axis:
            raise call.damaged("it joins tensors of different ranks.")
        parts.append(value)
    few_columns(sum(part.width for part in parts))
    offsets = np.cumsum([0, *(part.width for part in parts)])
    grids = [part.grid() + offset for part, offset in zip(parts, offsets, strict=False)]
    order = np.concatenate(grids, axis=axis)
    shape = list(first.shape)
    shape[axis] = order.shape[axis]
    dtype, levels = first.dtype, _levels(call, parts)
    coded: Sequence[Rows] = parts
    if levels is not None:
        place = {value: position for position, value in enumerate(levels.tolist())}
        coded = [mapped(part, partial(_positions, place), "int64") for part in parts if part.width]
        dtype = "int64"
    content: Any
    if dtype == "str":
        tables = [part.content for part in parts]
        if not all(isinstance(table, Table) for table in tables):
            raise call.unsupported("joins strings of different kinds, which is not supported.")
        content = Table(tuple(column for table in tables for column in table.columns))  # type: ignore[union-attr]
        beside = Rows((None, len(content)), dtype, content)
    else:
        beside = joined(coded, (None, int(offsets[-1])), dtype)
    result = beside.take(order, tuple(shape))
    result.levels, result.dtype = levels, first.dtype
    if all(part.levels is not None for part in parts):
        result.origin = Targets(tuple(parts))
    return result


def _positions(place: Mapping[Any, int], levels: np.ndarray) -> np.ndarray:
    return np.array([place[text] for text in levels.tolist()], np.int64)


def _sequence(call: Call) -> Value:
    """``SequenceConstruct``: the matrices of several targets, side by side."""
    parts = [call.rows(i) for i in range(len(call.inputs))]
    if any(len(part.shape) != 2 or part.axis for part in parts):
        raise call.unsupported("makes a sequence of other tensors than matrices, which is not supported.")
    result = join(call, parts, 1)
    result.origin = Targets(tuple(parts))
    return result


def columns_of(shape: Sequence[int | None]) -> int:
    """Return the number of columns of a shape."""
    return math.prod(extent for extent in shape if extent is not None)


def _levels(call: Call, parts: Sequence[Rows]) -> np.ndarray | None:
    """Return the levels of all parts together; None if numbers are joined."""
    known = [part.levels for part in parts if part.width]
    if not known or all(levels is None for levels in known):
        return None
    if all(levels is not None and np.array_equal(levels, known[0]) for levels in known):  # type: ignore[arg-type]
        return known[0]
    if parts[0].dtype != "str":
        return None
    if any(levels is None for levels in known):
        raise call.unsupported("joins strings of different kinds, which is not supported.")
    texts = dict.fromkeys(text for levels in known for text in levels.tolist())  # type: ignore[union-attr]
    return np.array(list(texts), object)


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
        raise call.damaged("its starts, ends, axes and steps differ in length.")
    chosen: list[slice] = [slice(None)] * rank
    for axis, start, end, step in zip(
        axes.tolist(), starts.tolist(), ends.tolist(), steps.tolist(), strict=True
    ):
        if step == 0:
            raise call.damaged("a step is 0.")
        at = axis_of(call, axis, rank)
        # Backwards, an end before the first value includes it.
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
    return picked(x, x.grid()[tuple(chosen)])


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
        part_size = -(-extent // parts)
        sizes = [max(0, min(part_size, extent - i * part_size)) for i in range(parts)]
    if sum(sizes) != extent or min(sizes, default=0) < 0 or len(sizes) != parts:
        raise call.damaged(f"it splits {extent} values into {str(sizes)[:60]}.")
    ends = np.cumsum(sizes)[:-1]
    if isinstance(x, np.ndarray):
        return tuple(np.split(x, ends, axis))
    return tuple(picked(x, grid) for grid in np.split(x.grid(), ends, axis))


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
    """Return entries of a constant, shape (T, ...), at the rows' positions."""
    dtype = "str" if data.dtype == object else data.dtype.name
    width = math.prod(data.shape[1:])
    positions = index.numbers().node()
    if width == 1:
        if len(data) == 0:
            raise ValueError("a table without entries")
        levels = data.reshape(len(data))
        return Rows(shape, dtype, _from_front(positions, len(levels)), levels)
    table = data.reshape(len(data), width).astype(np.float64)
    node = Take(_from_front(positions, len(table)), table)
    # `Take` orders columns by the table's column first: order them by position first.
    order = np.arange(node.width).reshape(width, index.width).T
    return of_node(node, (None, node.width), dtype).take(order, shape)


def _from_front(positions: Any, count: int) -> Any:
    """Return positions from the front; negative positions count from the end."""
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
    few_columns(count * among)
    positions = Repeat(index.numbers().node(), among)
    hot = apply("equal", positions, np.tile(np.arange(among, dtype=np.float64), count))
    # Not a product: infinities times 0 would be NaN.
    chosen = apply("where", hot, Repeat(data.node(), count, tiled=True), 0.0)
    return of_node(reduce("sum", chosen, count), index.shape, data.dtype)


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
    "Concat": _concat,
    "SequenceConstruct": _sequence,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "OneHot": _one_hot,
}
"""By operator of ONNX's own domain."""
