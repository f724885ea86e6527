"""Casts of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations.logic import no
from hbtvm.frontends.onnx.reading import DTYPES
from hbtvm.frontends.onnx.texts import Spelled, spelled
from hbtvm.frontends.onnx.values import Rows, Value, each, floats
from hbtvm.graph.columns.steps import Above, Function
from hbtvm.graph.columns.table import Table
from hbtvm.operators.pointwise import apply
from hbtvm.operators.rounding import single


def _cast(call: Call) -> Value:
    to = DTYPES.get(call.whole("to"))
    if to is None:
        raise call.unsupported(f"casts to the type {call.whole('to')}, which is not supported.")
    return cast(call, call.value(0), to)


def _cast_like(call: Call) -> Value:
    like = call.value(1)
    dtype = like.dtype if isinstance(like, Rows) else like.dtype.name
    return cast(call, call.value(0), "str" if dtype == "object" else dtype)


@overload
def cast(call: Call, x: Rows, to: str) -> Rows: ...
@overload
def cast(call: Call, x: np.ndarray, to: str) -> np.ndarray: ...
def cast(call: Call, x: Value, to: str) -> Value:
    """A tensor in another type."""
    if isinstance(x, np.ndarray):
        return _cast_values(call, x, to)
    origin = x.origin
    if x.levels is not None:
        return Rows(x.shape, to, x.content, _cast_values(call, x.levels, to), origin, x.unfolded)
    if to == x.dtype:
        return x
    if x.dtype == "bool" and "int" in to and not isinstance(x.content, Table):
        # The positions of 0 and 1 are the numbers themselves.
        return Rows(x.shape, to, x.content, np.arange(2), origin, x.unfolded)
    if to == "str" and isinstance(x.content, Table) and not x.dtype.startswith("float"):
        return Rows(x.shape, to, each(x.content, Spelled()), unfolded=x.unfolded)
    if "str" in (x.dtype, to):
        raise call.unsupported(f"casts {x.dtype} to {to}, which is not supported.")
    whole = x.dtype == "bool" or "int" in x.dtype
    content = x.content
    if to == "bool" and whole and isinstance(content, Table) and x.dtype != "bool":
        content = each(each(content, Function("absolute")), Above(0.0))
    elif to == "bool":
        # NaN is true.
        content = no(no(x.node())) if x.dtype != "bool" else content
    elif "int" in to and not whole:
        is_table = isinstance(content, Table)
        content = each(content, Function("trunc")) if is_table else apply("trunc", x.node())  # type: ignore[arg-type]
    elif to in ("float32", "float64") and isinstance(content, Table):
        content = floats(content, to)
    elif to == "float32" and x.dtype != "bool":
        content = single(x.node())
    return Rows(x.shape, to, content, origin=origin, unfolded=x.unfolded)


def _cast_values(call: Call, x: np.ndarray, to: str) -> np.ndarray:
    try:
        if to == "str":
            out = np.empty(x.size, object)
            out[:] = [spelled(value) for value in x.ravel().tolist()]
            return out.reshape(x.shape)
        with np.errstate(all="ignore"):
            if x.dtype == object:
                return x.astype(np.float64).astype(to)
            return x.astype(to)
    except ValueError as error:
        raise call.damaged(f"it casts strings to {to} that are not numbers.") from error


OPERATIONS: Mapping[str, Evaluate] = {"Cast": _cast, "CastLike": _cast_like}
"""By operator of ONNX's own domain."""
