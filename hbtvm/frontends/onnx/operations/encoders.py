"""ai.onnx.ml's encoders: maps of values, and one-hot columns.

Source: the operators' definition in ONNX 1.23; ONNX Runtime where that is open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.joining import joined, mapped
from hbtvm.frontends.onnx.texts import encoding
from hbtvm.frontends.onnx.values import Rows, Value, each, few_columns, floats, of_node
from hbtvm.graph.columns.steps import Encode, Equals, Function, Lookup, Step
from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.networks.network import Trees
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.operators.base import Node, constant
from hbtvm.operators.pointwise import FUNCTIONS, Elementwise, apply
from hbtvm.operators.shapes import Concat, Select, reduce
from hbtvm.operators.tables import OneHot


def _keys(call: Call, kinds: Sequence[str]) -> tuple[list[Any], str]:
    """Return keys or values of a ``LabelEncoder``, and their type."""
    for name in kinds:
        keys = call.operation.attributes.get(name)
        if keys is None:
            continue
        if isinstance(keys, np.ndarray):
            return keys.ravel().tolist(), "str" if keys.dtype == object else keys.dtype.name
        if isinstance(keys, list):
            return keys, "str"
    raise call.damaged("its keys or values are missing.")


def _label_encoder(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, np.ndarray):
        # Encode the values as levels.
        result = _encoded(
            call, Rows((None, 1), "str" if x.dtype == object else x.dtype.name, constant(0.0), x.ravel())
        )
        assert result.levels is not None
        return result.levels.reshape(x.shape)
    return _encoded(call, x)


def _encoded(call: Call, x: Rows) -> Rows:
    if "classes_strings" in call.operation.attributes:
        texts = call.texts("classes_strings")
        if x.dtype == "str":
            values: list[Any] = list(range(len(texts)))
            return _translated(call, x, texts, values, call.whole("default_int64", -1), "int64")
        text = call.text("default_string", "_Unused")
        return _translated(call, x, list(range(len(texts))), texts, text, "str")
    keys, _ = _keys(call, ("keys_strings", "keys_int64s", "keys_floats", "keys_tensor"))
    values, dtype = _keys(call, ("values_strings", "values_int64s", "values_floats", "values_tensor"))
    if len(keys) != len(values):
        raise call.damaged(f"it has {len(keys)} keys, but {len(values)} values.")
    if call.version < 4:
        # NaN is a key since version 4.
        kept = [i for i, key in enumerate(keys) if key == key]
        keys, values = [keys[i] for i in kept], [values[i] for i in kept]
    default: Any = call.operation.attributes.get("default_tensor")
    if isinstance(default, np.ndarray) and default.size == 1:
        default = default.reshape(-1)[0]
    elif dtype == "str":
        default = call.text("default_string", "_Unused")
    elif "int" in dtype:
        default = call.whole("default_int64", -1)
    else:
        default = float(np.float32(call.number("default_float", -0.0)))
    return _translated(call, x, keys, values, default, dtype)


def _category_mapper(call: Call) -> Value:
    x = call.rows()
    texts, numbers = call.texts("cats_strings"), call.integers("cats_int64s").tolist()
    if len(texts) != len(numbers):
        raise call.damaged(f"it has {len(texts)} strings for {len(numbers)} integers.")
    if x.dtype == "str":
        return _translated(call, x, texts, numbers, call.whole("default_int64", -1), "int64")
    return _translated(call, x, numbers, texts, call.text("default_string", "_Unused"), "str")


def _translated(
    call: Call, x: Rows, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: str
) -> Rows:
    """Replace keys by values, and other values by the default."""
    pairs: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        # NaN may be a key; ONNX Runtime takes the first of equal keys.
        pairs.setdefault("nan" if key != key else key, value)
    if x.dtype == "str" and any(not isinstance(key, str) for key in keys):
        raise call.damaged("its keys are not strings, but its input is.")

    def translate(levels: np.ndarray) -> np.ndarray:
        out = np.empty(len(levels), object)
        out[:] = [pairs.get("nan" if key != key else key, default) for key in levels.tolist()]
        return out

    if x.levels is not None:
        return mapped(x, translate, dtype)
    categories: list[Any] = list(dict.fromkeys(key for key in keys if key == key))
    categories += [math.nan] * any(key != key for key in keys)
    kind: Any = object if dtype == "str" else dtype
    levels = np.append(translate(np.array([*categories, None], object))[:-1], [default]).astype(kind)
    if isinstance(x.content, Table):
        codes = _coded(x, categories)
        if dtype == "str":
            return Rows(x.shape, dtype, codes, levels)
        return Rows(x.shape, dtype, each(floats(codes, dtype), Lookup(levels.astype(np.float64))))
    if not categories:
        return Rows(x.shape, dtype, apply("multiply", x.node(), 0.0), levels[-1:])
    few_columns(x.width * len(categories))
    codes_ = [_code_of(x.take(np.array([i]), (None, 1)).node(), categories) for i in range(x.width)]
    whole = joined([of_node(code, (None, 1)) for code in codes_], x.shape, "int64")
    return Rows(x.shape, dtype, whole.content, levels)


def _coded(x: Rows, categories: Sequence[Any]) -> Table:
    """Return the codes of a table's values."""
    assert isinstance(x.content, Table)
    if x.dtype != "str":
        return each(x.content, Encode(tuple(categories)))
    return Table(tuple(map(encoding(categories), x.content.columns)))


def _code_of(node: Node, categories: Sequence[Any]) -> Node:
    """Return the position of a column's value among categories; their number for unknown values."""
    count = len(categories)
    known = np.array(categories, np.float64)
    equal = apply("equal", node, known)
    if np.isnan(known).any():
        equal = apply(
            "maximum", equal, apply("multiply", apply("isnan", node), np.isnan(known).astype(float))
        )
    return reduce("min", apply("where", equal, np.arange(count, dtype=np.float64), float(count)))


def _one_hot_encoder(call: Call) -> Value:
    x = call.rows()
    texts, numbers = call.texts("cats_strings"), call.integers("cats_int64s").tolist()
    categories: list[Any] = texts if x.dtype == "str" else numbers
    if not categories:
        raise call.damaged("it has no categories of its input's type.")
    if len(set(categories)) < len(categories):
        raise call.unsupported("has a category twice, which is not supported.")
    strict = not call.whole("zeros", 1)
    shape = (*x.shape, len(categories))
    few_columns(x.width * len(categories))
    if x.levels is not None:
        if strict and not set(x.levels.tolist()) <= set(categories):
            raise call.unsupported("refuses unknown values of an encoder, which is not supported.")
        codes = {value: code for code, value in enumerate(categories)}
        x = mapped(
            x, lambda values: np.array([codes.get(v, len(codes)) for v in values.tolist()], np.int64), "int64"
        )
        categories, strict = list(range(len(categories))), False
    if isinstance(x.content, Table):
        unknown: Any = "error" if strict else "code"
        truncated = isinstance(categories[0], int) and x.dtype.startswith("float")
        before: tuple[Step, ...] = (Function("trunc"),) if truncated else ()
        encoded: dict[tuple[Any, ...], Column] = {}
        columns: list[Column] = []
        equals = [Equals((code,)) for code in range(len(categories))]
        where = f"{call.operation.where}: a category"
        for column in x.content.columns:
            # Columns of the same source share the work.
            key = (column.source, *map(id, column.steps))
            if key not in encoded:
                steps = *before, Encode(tuple(categories), unknown, where)
                of_texts = encoding(categories, unknown, where) if x.dtype == "str" else None
                encoded[key] = of_texts(column) if of_texts else column.then(*steps)
            columns += [encoded[key].then(step) for step in equals]
        return Rows(shape, "float32", Table(tuple(columns)))
    node = x.numbers().node()
    if strict and not all(_values_of(node, i) <= {*categories} for i in range(x.width)):
        raise call.unsupported("refuses unknown values of computed columns, which is not supported.")
    if x.dtype.startswith("float"):
        node = apply("trunc", node)
    column_ = np.repeat(np.arange(x.width, dtype=np.int32), len(categories))
    return of_node(OneHot(node, column_, np.tile(np.array(categories, np.float64), x.width)), shape)


def _values_of(node: Node, column: int) -> set[float]:
    """Return the values that a column of tree leaves may have; with NaN if they are unknown."""
    match node:
        case Trees() if node.ensemble.n_trees == node.ensemble.n_outputs == 1:
            leaves = node.ensemble.value[node.ensemble.left == LEAF] / node.ensemble.divisor
            return {*(leaves + node.ensemble.base_score).ravel().tolist()}
        case Elementwise(function="round_float32" | "trunc"):
            return {*FUNCTIONS[node.function](np.array([*_values_of(node.operands[0], column)])).tolist()}
        case Select():
            return _values_of(node.x, int(node.indices[column]))
        case Concat():
            for part in node.parts:
                if column < part.width:
                    return _values_of(part, column)
                column -= part.width
    return {math.nan}


OPERATIONS: Mapping[str, Evaluate] = {
    "LabelEncoder": _label_encoder,
    "CategoryMapper": _category_mapper,
    "OneHotEncoder": _one_hot_encoder,
}
"""By operator of the domain ai.onnx.ml."""
