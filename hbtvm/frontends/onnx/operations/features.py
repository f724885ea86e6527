"""ai.onnx.ml's operators on features: scaling, imputing, normalizing, selection.

Source: the operators' definition in ONNX 1.23; ONNX Runtime where that is open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations.casts import cast
from hbtvm.frontends.onnx.operations.choosing import join, looked_up
from hbtvm.frontends.onnx.operations.reductions import spread
from hbtvm.frontends.onnx.values import Rows, Value, each, floats, of_node
from hbtvm.graph.columns.steps import Above, Arithmetic, Fill
from hbtvm.graph.columns.table import Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce


def _per_column(call: Call, name: str, x: Rows) -> np.ndarray:
    """Return an attribute with a number for each column of the last axis, or for all."""
    values = call.array(name)
    last = x.shape[-1]
    if len(values) not in (1, last) or last is None:
        raise call.damaged(f"it has {len(values)} numbers as its {name} for the shape {x.shape}.")
    count = x.width // last if len(values) == last else x.width
    return np.tile(values.astype(np.float64), count)


def _scaler(call: Call) -> Value:
    x = call.rows().numbers()
    offset, scale = _per_column(call, "offset", x), _per_column(call, "scale", x)
    # float64 is scaled in float64, other types in float32; the result is float32.
    wide = x.dtype == "float64"
    x = x if wide else cast(call, x, "float32")
    if not isinstance(x.content, Table):
        shifted = of_node(apply("subtract", x.node(), offset), x.shape, x.dtype)
        return of_node(apply("multiply", shifted.node(), scale), x.shape)
    pairs = zip(x.content.columns, offset.tolist(), scale.tolist(), strict=True)
    table = Table(
        tuple(
            column.then(Arithmetic("subtract", shift, True), Arithmetic("multiply", factor, True))
            for column, shift, factor in pairs
        )
    )
    return Rows(x.shape, "float32", floats(table, "float32") if wide else table)


def _imputer(call: Call) -> Value:
    x = call.rows().numbers()
    whole = "int" in x.dtype
    values = call.integers("imputed_value_int64s") if whole else call.array("imputed_value_floats")
    last = x.shape[-1]
    if len(values) not in (1, last) or last is None:
        raise call.damaged(f"it has {len(values)} values for the shape {x.shape}.")
    if whole:
        missing = float(call.whole("replaced_value_int64", 0))
    else:
        missing = call.number("replaced_value_float", 0.0)
    filled = np.tile(values.astype(np.float64), x.width if len(values) == 1 else x.width // last).tolist()
    if isinstance(x.content, Table):
        pairs = zip(x.content.columns, filled, strict=True)
        table = Table(tuple(column.then(Fill(value, missing)) for column, value in pairs))
        return Rows(x.shape, x.dtype, table)
    node = x.node()
    absent = apply("isnan", node) if math.isnan(missing) else apply("equal", node, missing)
    return of_node(apply("where", absent, np.array(filled), node), x.shape, x.dtype)


def _binarizer(call: Call) -> Value:
    x = call.rows().numbers()
    threshold = call.number("threshold", 0.0)
    if isinstance(x.content, Table):
        return Rows(x.shape, x.dtype, each(x.content, Above(threshold)))
    return of_node(apply("greater", x.node(), threshold), x.shape, x.dtype)


def _normalizer(call: Call) -> Value:
    x = call.rows().numbers()
    if len(x.shape) != 2 or x.axis != 0:
        raise call.unsupported(f"normalizes the shape {x.shape}, which is not supported.")
    norm, node = call.text("norm", "MAX"), x.node()
    total: Node
    match norm:
        case "MAX":
            total = reduce("max", node)
        case "L1":
            total = reduce("sum", apply("absolute", node))
        case "L2":
            total = apply("sqrt", reduce("sum", apply("square", node)))
        case _:
            raise call.damaged(f"its norm is {norm[:20]!r}.")
    # Rows of zeros stay as they are.
    divisor = apply("where", apply("equal", total, 0.0), 1.0, total)
    result = of_node(apply("divide", node, spread(divisor, 1, x.width)), x.shape)
    result.origin = x.origin if norm == "L1" else None
    return result


def _vectorizer(call: Call) -> Value:
    """``FeatureVectorizer``: all inputs side by side."""
    parts = [call.rows(i) for i in range(len(call.inputs))]
    sizes = call.integers("inputdimensions").tolist()
    if [part.width for part in parts] != sizes:
        raise call.unsupported(f"takes {sizes} columns of inputs of {[part.width for part in parts]}.")
    matrices = [Rows((None, part.width), part.dtype, part.content, part.levels) for part in parts]
    return join(call, [cast(call, part, "float32") for part in matrices], 1)


def _extractor(call: Call) -> Value:
    """``ArrayFeatureExtractor``: some values along the last axis."""
    x, index = call.value(0), call.value(1)
    if isinstance(index, np.ndarray):
        chosen = index.ravel().astype(np.int64)
        extent = x.shape[-1] if x.shape else 0
        if extent is None:
            raise call.unsupported("takes some of the rows, which is not supported.")
        if not len(chosen) or chosen.min() < 0 or chosen.max() >= extent:
            raise call.damaged(f"it takes values beyond {extent}.")
        if isinstance(x, np.ndarray):
            return x.reshape(-1, extent)[:, chosen] if x.ndim > 1 else x[None, chosen]
        return x.take(x.grid()[..., chosen], (*x.shape[:-1], len(chosen)))
    if isinstance(x, Rows):
        raise call.unsupported(
            "takes values by positions that both depend on the rows, which is not supported."
        )
    data = x.reshape(-1, x.shape[-1])
    if len(data) == 1 and index.width == 1:
        flat = looked_up(index, data[0], (1, None))
        flat.origin = index.origin
        return flat
    table = np.ascontiguousarray(data.T)
    if index.width == 1 and data.dtype != object:
        several = looked_up(index, table, (None, len(data)))
        return several.take(np.arange(len(data)), (*x.shape[:-1], None))
    if index.shape != (None, index.width) or data.dtype == object:
        raise call.unsupported("takes several values for each row, which is not supported.")
    values = looked_up(index, table, (None, index.width, len(data)))
    result = values.take(values.grid().transpose(2, 0, 1), (len(data), None, index.width))
    # In ONNX, the rows and the values of each are a single axis.
    result.unfolded = True
    return result


def _zip_map(call: Call) -> Value:
    """``ZipMap``: a matrix in place of ONNX Runtime's dictionaries."""
    return call.value(0)


OPERATIONS: Mapping[str, Evaluate] = {
    "Scaler": _scaler,
    "Imputer": _imputer,
    "Binarizer": _binarizer,
    "Normalizer": _normalizer,
    "FeatureVectorizer": _vectorizer,
    "ArrayFeatureExtractor": _extractor,
    "ZipMap": _zip_map,
}
"""By operator of the domain ai.onnx.ml."""
