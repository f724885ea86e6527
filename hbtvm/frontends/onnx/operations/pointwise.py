"""Functions of single values: arithmetic, comparisons, logic, activations, casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.broadcasting import flat, operand, shape_of, stretched
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.reading import DTYPES
from hbtvm.frontends.onnx.values import Rows, Value, bounded, each, of_node
from hbtvm.graph.evaluate import of_numbers
from hbtvm.graph.steps import Above, Arithmetic, Cast, Encode, Equals, Fill, Function, IsMissing, Step
from hbtvm.graph.steps import Clip as ClipStep
from hbtvm.graph.table import Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import FUNCTIONS, apply

Build = Callable[..., Node]

_UNARY: Mapping[str, str] = {
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Abs": "absolute", "Neg": "negative", "Floor": "floor",
    "Ceil": "ceil", "Round": "rint", "Sign": "sign", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Tanh": "tanh",
    "Sinh": "sinh", "Cosh": "cosh", "Atan": "arctan", "Asinh": "arcsinh", "Sigmoid": "sigmoid",
    "Relu": "relu", "Reciprocal": "reciprocal",
}  # fmt: skip
_ARITHMETIC: Mapping[str, Any] = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Pow": "power"
}  # fmt: skip
_COMPARISONS: Mapping[str, str] = {
    "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "Equal": "equal",
}  # fmt: skip

_AS_STEPS = frozenset(
    (
        *("exp", "log", "sqrt", "absolute", "negative", "floor", "ceil", "rint", "sign", "sin", "cos", "tan"),
        *("tanh", "sinh", "cosh", "arctan", "arcsinh", "reciprocal"),
    )
)


def no(x: Any) -> Node:
    """1 where a value is 0, else 0."""
    return apply("equal", x, 0.0)


def _unary(name: str) -> Evaluate:
    def run(call: Call) -> Value:
        x = call.value(0)
        if isinstance(x, np.ndarray):
            return FUNCTIONS[name](x).astype(x.dtype)
        x = x.numbers()
        if isinstance(x.content, Table) and name in _AS_STEPS and x.dtype.startswith("float"):
            return Rows(x.shape, x.dtype, each(x.content, Function(name)))
        return of_node(apply(name, x.node()), x.shape, x.dtype)

    return run


def _stepwise(x: Rows, constant: np.ndarray, make: Callable[[float], Step]) -> Table:
    """A table's columns with a step each, by constants; of one constant, the same step."""
    assert isinstance(x.content, Table)
    if len(constant) == 1:
        return each(x.content, make(float(constant[0])))
    pairs = zip(x.content.columns, constant.tolist(), strict=True)
    return Table(tuple(column.then(make(value)) for column, value in pairs))


def _arithmetic(kind: str) -> Evaluate:
    def run(call: Call) -> Value:
        return arithmetic(call, kind, call.value(0), call.value(1))

    return run


def arithmetic(call: Call, kind: str, a: Value, b: Value) -> Value:
    """``Add``, ``Sub``, ``Mul``, ``Div`` or ``Pow`` of two tensors."""
    name = _ARITHMETIC[kind]
    dtype = a.dtype if isinstance(a, Rows) else a.dtype.name
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _of_constants(call, name, a, b)
    shape = shape_of([a, b])
    neutral = 0.0 if kind in ("Add", "Sub") else 1.0
    if isinstance(a, Rows) and isinstance(b, np.ndarray) and shape == a.shape and np.all(b == neutral):
        return a
    as_steps = _as_steps(kind, a, b, shape, dtype)
    if as_steps is not None:
        return as_steps
    if kind == "Pow" and isinstance(b, np.ndarray) and (b == 2).all():
        assert isinstance(a, Rows)
        return of_node(apply("square", operand(a, shape)), shape, dtype)
    node: Node = apply(name, operand(a, shape), operand(b, shape))
    if kind == "Div" and not dtype.startswith("float"):
        node = apply("trunc", node)
    return of_node(node, shape, dtype)


def _as_steps(kind: str, a: Value, b: Value, shape: Any, dtype: str) -> Rows | None:
    """Arithmetic of a table's columns with constants, as steps; None if it is none."""
    x, c = (a, b) if isinstance(a, Rows) else (b, a)
    if not isinstance(x, Rows) or isinstance(c, Rows) or not dtype.startswith("float"):
        return None
    x = stretched(x.numbers(), shape)
    if not isinstance(x.content, Table) or c.dtype == object:
        return None
    constant = flat(c, shape).astype(np.float64)
    if (isinstance(a, Rows) and kind != "Pow") or kind in ("Add", "Mul"):
        table = _stepwise(x, constant, lambda value: Arithmetic(_ARITHMETIC[kind], value, True))
    elif kind == "Sub":
        # Exactly the difference, as no rounding comes in between.
        negative = Rows(x.shape, x.dtype, each(x.content, Function("negative")))
        table = _stepwise(negative, constant, lambda value: Arithmetic("add", value, True))
    else:
        return None
    return Rows(shape, dtype, table)


def _of_constants(call: Call, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bounded(_size(a, b))
    if name == "divide" and a.dtype.kind in "iu":
        if not np.all(b):
            raise call.damaged("it divides integers by 0.")
        quotient = np.floor_divide(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b)
        return np.asarray(quotient).astype(a.dtype)
    with np.errstate(all="ignore"):
        if name == "power" and a.dtype.kind in "iu":
            return np.power(a.astype(np.float64), b).astype(a.dtype)
        return np.asarray(getattr(np, name)(a, b)).astype(a.dtype)


def _size(*arrays: np.ndarray) -> int:
    size = 1
    for extent in np.broadcast_shapes(*(one.shape for one in arrays)):
        size *= extent
    return size


def _comparison(kind: str) -> Evaluate:
    name = _COMPARISONS[kind]

    def run(call: Call) -> Value:
        a, b = call.value(0), call.value(1)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            bounded(_size(a, b))
            return np.asarray(getattr(np, name)(a, b)).astype(bool)
        shape = shape_of([a, b])
        if kind == "Equal" and "str" in (a.dtype, b.dtype):
            return _same_text(call, a, b, shape)
        x = a if isinstance(a, Rows) else None
        if kind == "Greater" and x is not None and isinstance(b, np.ndarray):
            wide = stretched(x.numbers(), shape)
            if isinstance(wide.content, Table):
                return Rows(shape, "bool", _stepwise(wide, flat(b, shape).astype(np.float64), Above))
        return of_node(apply(name, operand(a, shape), operand(b, shape)), shape, "bool")

    return run


def _same_text(call: Call, a: Value, b: Value, shape: Any) -> Rows:
    """Whether texts are constants."""
    x, c = (a, b) if isinstance(a, Rows) else (b, a)
    if not isinstance(x, Rows) or isinstance(c, Rows):
        raise call.unsupported("compares strings of the rows with each other, which is not supported.")
    wanted = np.broadcast_to(flat(c, shape), stretched(x, shape).width).tolist()
    x = stretched(x, shape)
    if x.levels is not None:
        columns = [mapped(x.take(np.array([i]), (None, 1)), lambda one, i=i: one == wanted[i], "bool")
                   for i in range(x.width)]  # fmt: skip
        return joined(columns, shape, "bool")
    assert isinstance(x.content, Table)
    encoder = Encode(tuple(dict.fromkeys(wanted)))
    return Rows(
        shape,
        "bool",
        Table(
            tuple(
                column.then(encoder, Equals((encoder.code(value),)))
                for column, value in zip(x.content.columns, wanted, strict=True)
            )
        ),
    )


def joined(parts: Sequence[Rows], shape: Any, dtype: str) -> Rows:
    """Columns of several tensors side by side, as a tensor of a shape."""
    from hbtvm.operators.shapes import concat

    parts = [one.numbers() for one in parts if one.width]
    tables = [one.content for one in parts if isinstance(one.content, Table)]
    if len(tables) == len(parts):
        return Rows(shape, dtype, Table(tuple(column for one in tables for column in one.columns)))
    return Rows(shape, dtype, concat([one.node() for one in parts]))


def mapped(x: Rows, function: Callable[[np.ndarray], Any], dtype: str) -> Rows:
    """A function of a tensor that has levels: the same positions in other values."""
    assert x.levels is not None
    levels = np.asarray(function(x.levels))
    kind = object if dtype == "str" else dtype
    return Rows(x.shape, dtype, x.content, levels.astype(kind))


def _logic(call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    kind = call.operation.kind
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        bounded(_size(a, b))
        function = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}[kind]
        return np.asarray(function(a, b))
    shape = shape_of([a, b])
    left, right = operand(a, shape), operand(b, shape)
    node: Node
    if kind == "And":
        node = apply("multiply", left, right)
    elif kind == "Or":
        node = apply("maximum", left, right)
    else:
        node = no(apply("equal", left, right))
    return of_node(node, shape, "bool")


def _not(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, np.ndarray):
        return np.logical_not(x)
    return of_node(no(x.node()), x.shape, "bool")


def _is_nan(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, np.ndarray):
        return np.isnan(x)
    x = x.numbers()
    if isinstance(x.content, Table):
        return Rows(x.shape, "bool", each(x.content, IsMissing()))
    return of_node(apply("isnan", x.node()), x.shape, "bool")


def _where(call: Call) -> Value:
    condition, a, b = call.value(0), call.value(1), call.value(2)
    values = (condition, a, b)
    if all(isinstance(one, np.ndarray) for one in values):
        bounded(_size(*values))  # type: ignore[arg-type]
        return np.where(condition, a, b)  # type: ignore[arg-type]
    shape = shape_of(values)
    if "str" in (a.dtype, b.dtype):
        return _filled(call, condition, a, b, shape)
    dtype = a.dtype if isinstance(a, Rows) else a.dtype.name
    if isinstance(condition, np.ndarray):
        condition = condition.astype(np.float64)
    return of_node(apply("where", *(operand(one, shape) for one in (condition, a, b))), shape, dtype)


def _filled(call: Call, condition: Value, a: Value, b: Value, shape: Any) -> Rows:
    """A constant in place of some of the input's strings, as imputers of strings are written."""
    refused = call.unsupported("chooses among strings in a way that is not supported.")
    if not isinstance(a, np.ndarray) or not isinstance(b, Rows) or not isinstance(condition, Rows):
        raise refused
    x, when = stretched(b, shape), stretched(condition.numbers(), shape)
    if not isinstance(x.content, Table) or not isinstance(when.content, Table) or x.levels is not None:
        raise refused
    wanted = np.broadcast_to(flat(a, shape), x.width).tolist()
    columns = []
    for own, other, value in zip(x.content.columns, when.content.columns, wanted, strict=True):
        encoder = other.encoder
        at = 0 if encoder is None else other.steps.index(encoder)
        if encoder is None or other.source != own.source or own.steps or at:
            raise refused
        chosen = of_numbers(other.steps[1:], np.arange(len(encoder), dtype=np.float64)) != 0
        if chosen[-1]:
            # All but some strings.
            raise refused
        codes = np.flatnonzero(chosen).tolist()
        columns.append(own.then(*(Fill(value, encoder.categories[code]) for code in codes)))
    return Rows(shape, "str", Table(tuple(columns)))


def _several(kind: str) -> Evaluate:
    """``Sum``, ``Mean``, ``Max`` and ``Min`` of any number of tensors."""
    name = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[kind]

    def run(call: Call) -> Value:
        total = call.value(0)
        for at in range(1, len(call.inputs)):
            other = call.value(at)
            if isinstance(total, np.ndarray) and isinstance(other, np.ndarray):
                total = _of_constants(call, name, total, other)
                continue
            shape = shape_of([total, other])
            dtype = total.dtype if isinstance(total, Rows) else total.dtype.name
            total = of_node(apply(name, operand(total, shape), operand(other, shape)), shape, dtype)
        if kind != "Mean":
            return total
        count = np.array(len(call.inputs), np.float32)
        return arithmetic(call, "Div", total, count)

    return run


def _clip(call: Call) -> Value:
    x = call.value(0)
    if call.version < 11:
        low: Value | None = np.array(call.number("min", float(np.finfo(np.float32).min)))
        high: Value | None = np.array(call.number("max", float(np.finfo(np.float32).max)))
    else:
        low = call.value(1) if call.has(1) else None
        high = call.value(2) if call.has(2) else None
    if isinstance(x, np.ndarray):
        bounds = [one for one in (low, high) if isinstance(one, np.ndarray)]
        if len(bounds) < (low is not None) + (high is not None):
            raise call.unsupported("takes its bounds from the rows, which is not supported.")
        out = x if low is None else np.maximum(x, low)
        return np.asarray(out if high is None else np.minimum(out, high)).astype(x.dtype)
    x = x.numbers()
    simple = all(one is None or (isinstance(one, np.ndarray) and one.size == 1) for one in (low, high))
    if isinstance(x.content, Table) and simple:
        ends = [np.inf if one is None else float(one.reshape(-1)[0]) for one in (low, high)]  # type: ignore[union-attr]
        step = ClipStep(-np.inf if low is None else ends[0], ends[1])
        return Rows(x.shape, x.dtype, each(x.content, step))
    node = x.node()
    for function, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            node = apply(function, node, operand(bound, x.shape))
    return of_node(node, x.shape, x.dtype)


def _cast(call: Call) -> Value:
    to = DTYPES.get(call.whole("to"))
    if to is None:
        raise call.unsupported(f"casts to the type {call.whole('to')}, which is not supported.")
    return cast(call, call.value(0), to)


def _cast_like(call: Call) -> Value:
    like = call.value(1)
    dtype = like.dtype if isinstance(like, Rows) else like.dtype.name
    return cast(call, call.value(0), "str" if dtype == "object" else dtype)


def cast(call: Call, x: Value, to: str) -> Value:
    """A tensor in another type."""
    if isinstance(x, np.ndarray):
        return _cast_values(call, x, to)
    origin = x.origin
    if x.levels is not None:
        return Rows(x.shape, to, x.content, _cast_values(call, x.levels, to), origin, x.unfolded)
    if to == x.dtype:
        return x
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
    elif to == "float32" and x.dtype != "bool" and isinstance(content, Table):
        content = each(content, Cast("float32"))
    elif to == "float32" and x.dtype == "float64":
        content = apply("round_float32", x.node())
    return Rows(x.shape, to, content, origin=origin, unfolded=x.unfolded)


def _cast_values(call: Call, x: np.ndarray, to: str) -> np.ndarray:
    try:
        if to == "str":
            out = np.empty(x.size, object)
            out[:] = [str(one) for one in x.ravel().tolist()]
            return out.reshape(x.shape)
        with np.errstate(all="ignore"):
            if x.dtype == object:
                return x.astype(np.float64).astype(to)
            return x.astype(to)
    except ValueError as error:
        raise call.damaged(f"it casts strings to {to} that are no numbers.") from error


def _activation(build: Callable[[Call, Node], Node]) -> Evaluate:
    def run(call: Call) -> Value:
        x = call.rows()
        return of_node(build(call, x.node()), x.shape, x.dtype)

    return run


def _leaky(call: Call, x: Node) -> Node:
    return apply("where", apply("less", x, 0.0), apply("multiply", x, call.number("alpha", 0.01)), x)


def _elu(call: Call, x: Node) -> Node:
    alpha = 1.0 if call.operation.kind == "Elu" else 1.6732632
    gamma = 1.0
    if call.operation.kind == "Selu":
        gamma = call.number("gamma", 1.0507010)
    alpha = call.number("alpha", alpha)
    below = apply("multiply", apply("expm1", apply("minimum", x, 0.0)), alpha)
    return apply("multiply", apply("where", apply("less", x, 0.0), below, x), gamma)


def _softplus(call: Call, x: Node) -> Node:
    small = apply("log1p", apply("exp", apply("negative", apply("absolute", x))))
    return apply("add", small, apply("relu", x))


def _hard_sigmoid(call: Call, x: Node) -> Node:
    line = apply("add", apply("multiply", x, call.number("alpha", 0.2)), call.number("beta", 0.5))
    return apply("minimum", apply("maximum", line, 0.0), 1.0)


def _threshold(call: Call, x: Node) -> Node:
    return apply("where", apply("greater", x, call.number("alpha", 1.0)), x, 0.0)


def _softsign(call: Call, x: Node) -> Node:
    return apply("divide", x, apply("add", apply("absolute", x), 1.0))


def _identity(call: Call) -> Value:
    return call.value(0)


def _mod(call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        bounded(_size(a, b))
        if a.dtype.kind in "iu" and not np.all(b):
            raise call.damaged("it divides integers by 0.")
        return np.asarray(np.fmod(a, b) if call.whole("fmod", 0) else np.mod(a, b))
    shape = shape_of([a, b])
    x, y = operand(a, shape), operand(b, shape)
    rounding = "trunc" if call.whole("fmod", 0) else "floor"
    node = apply("subtract", x, apply("multiply", apply(rounding, apply("divide", x, y)), y))
    return of_node(node, shape, a.dtype if isinstance(a, Rows) else a.dtype.name)


OPERATIONS: Mapping[str, Evaluate] = {
    **{kind: _unary(name) for kind, name in _UNARY.items()},
    **{kind: _arithmetic(kind) for kind in _ARITHMETIC},
    **{kind: _comparison(kind) for kind in _COMPARISONS},
    **dict.fromkeys(("And", "Or", "Xor"), _logic),
    **{kind: _several(kind) for kind in ("Sum", "Mean", "Max", "Min")},
    **{
        kind: _activation(build)
        for kind, build in {
            "LeakyRelu": _leaky, "Elu": _elu, "Selu": _elu, "Softplus": _softplus, "Softsign": _softsign,
            "HardSigmoid": _hard_sigmoid, "ThresholdedRelu": _threshold,
        }.items()
    },
    "Not": _not,
    "IsNaN": _is_nan,
    "Where": _where,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Mod": _mod,
    "Identity": _identity,
    "Dropout": _identity,
}  # fmt: skip
"""By operator of ONNX's own domain."""
