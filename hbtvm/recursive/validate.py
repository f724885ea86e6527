"""Validation of cells and models, and types of values; one sentence for each mistake."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.cell import BINARY, OPERATORS, UNARY, Cell, RecursiveModel, Shape, Value
from hbtvm.words.printable import shown

MOST_CHILDREN = 64  # most places for children; cells with any number of children have no limit

_MOST = 2**31
_OPERANDS = {
    **dict.fromkeys(("weight", "constant", "input", "embed", "child", "children"), 0),
    **dict.fromkeys(("slice", "total", "most", "softmax", "reshape", *UNARY), 1),
    **dict.fromkeys(("matmul", "outer", *BINARY), 2),
}
"""Number of operands of each operator; ``concat`` takes at least one."""


def check(cell: Cell) -> None:
    """Check a cell.

    Raises `ModelError` if a value's shape differs from its operator's result, a name is unknown, a state is
    missing, or values for nodes without children read a child.
    """
    where = f"cell {shown(cell.name)!r}"
    if cell.children is not None and not (type(cell.children) is int and 1 <= cell.children <= MOST_CHILDREN):
        raise ModelError(
            f"{where}: children is {cell.children!r}; expected a number from 1 to {MOST_CHILDREN}, or None"
        )
    if not cell.states:
        raise ModelError(f"{where}: it has no states; expected at least one")
    for name, shape in cell.states.items():
        if not 1 <= len(shape) <= 2 or not _is_shape(shape):
            raise ModelError(
                f"{where}: state {shown(name)!r} has shape {shape}; expected (size,) or (rows, columns)"
            )
    for name, input_ in cell.inputs.items():
        if input_.kind not in ("number", "vector") or not _is_shape((input_.size,)):
            raise ModelError(
                f"{where}: input {shown(name)!r} is a {input_.kind} of size {input_.size}; "
                "expected at least 1"
            )
        if input_.kind == "vector" and input_.optional:
            raise ModelError(f"{where}: input {shown(name)!r} is a vector, and so can't be optional")
    for name, array in cell.weights.items():
        if array.dtype != np.float32 or array.ndim not in (1, 2) or not array.size:
            raise ModelError(
                f"{where}: weight {shown(name)!r} is {array.dtype} of shape {array.shape}; expected a "
                "vector or a matrix of float32"
            )
    for number, value in enumerate(cell.values):
        _check_value(cell, number, value, where)
    _check_outputs(cell, cell.inner, where)
    if cell.leaf is not None:
        _check_outputs(cell, cell.leaf, where)
        for number in needed(cell.values, cell.leaf.values()):
            if cell.values[number].op in ("child", "children"):
                raise ModelError(
                    f"{where}: value {number} reads a child, and states of nodes without children need it"
                )


def check_model(model: RecursiveModel) -> None:
    """Check a model: its cell, readout, layers, classes and vocabulary.

    Raises `ModelError` if these don't fit together.
    """
    cell, readout = model.cell, model.readout
    check(cell)
    if readout.state not in cell.states:
        raise ModelError(
            f"the readout's state is {shown(readout.state)!r}; expected one of {_names(cell.states)}"
        )
    if readout.over not in ("roots", "nodes", "total", "mean", "most"):
        raise ModelError(
            f"the readout is over {shown(readout.over)!r}; expected roots, nodes, total, mean or most"
        )
    width = math.prod(cell.states[readout.state])
    for number, layer in enumerate(model.layers):
        where = f"layer {number} behind the readout"
        if layer.op not in ("linear", "relu", "tanh", "sigmoid", "softmax"):
            raise ModelError(
                f"{where} is {shown(layer.op)!r}; expected linear, relu, tanh, sigmoid or softmax"
            )
        if layer.op != "linear":
            if layer.weight is not None or layer.bias is not None:
                raise ModelError(f"{where} is {layer.op}, which has no weights")
            continue
        weight, bias = layer.weight, layer.bias
        if weight is None or weight.ndim != 2 or weight.shape[1] != width or not weight.size:
            shape = None if weight is None else weight.shape
            raise ModelError(f"{where}: the weight's shape is {shape}; expected (outputs, {width})")
        width = len(weight)
        if bias is not None and bias.shape != (width,):
            raise ModelError(f"{where}: the bias' shape is {bias.shape}; expected ({width},)")
    if model.classes and len(model.classes) != width and (len(model.classes), width) != (2, 1):
        raise ModelError(
            f"there are {len(model.classes)} classes and {width} outputs; expected one output each"
        )
    if model.vocabulary is not None:
        try:
            model.vocabulary.fits(
                {name: input_.size for name, input_ in cell.inputs.items() if input_.kind == "number"}
            )
        except ValueError as error:
            raise ModelError(f"the vocabulary does not fit: {error}") from error


def needed(values: Sequence[Value], numbers: Iterable[int]) -> list[int]:
    """Return the numbers of values and of all their operands, in order."""
    wanted = set(numbers)
    for number in range(len(values) - 1, -1, -1):
        if number in wanted:
            wanted.update(values[number].of)
    return sorted(wanted)


def computed(value: Value, of: Sequence[Value]) -> tuple[Shape, bool]:
    """Return the shape of an operator's result, and whether there is a result for each child.

    Raises `ModelError` if operands don't fit; the text continues a sentence that begins with the operator.
    """
    shapes = [operand.shape for operand in of]
    per_child = any(operand.per_child for operand in of)
    op = value.op
    if op in UNARY:
        return shapes[0], per_child
    if op in BINARY:
        if shapes[0] and shapes[1] and shapes[0] != shapes[1]:
            raise ModelError(f"has operands of shapes {shapes[0]} and {shapes[1]}; expected one shape")
        return shapes[0] or shapes[1], per_child
    if op in ("total", "most"):
        if not per_child:
            raise ModelError("has an operand that is not per child; expected one value for each child")
        return shapes[0], False
    if op == "matmul":
        a, b = shapes
        if len(a) != 2 or len(b) not in (1, 2) or a[1] != b[0]:
            raise ModelError(f"has operands of shapes {a} and {b}; expected (m, k) and (k,) or (k, n)")
        return (a[0], *b[1:]), per_child
    if op == "concat":
        if not all(shapes) or len({shape[1:] for shape in shapes}) != 1:
            raise ModelError(
                f"has operands of shapes {_listed(shapes)}; expected the same but for the first axis"
            )
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]), per_child
    if op == "slice":
        if not shapes[0] or not 0 <= value.start < value.stop <= shapes[0][0]:
            raise ModelError(
                f"takes {value.start} to {value.stop} of shape {shapes[0]}, which has no such part"
            )
        return (value.stop - value.start, *shapes[0][1:]), per_child
    if op == "reshape":
        if not 1 <= len(value.shape) <= 2 or math.prod(value.shape) != math.prod(shapes[0]):
            raise ModelError(f"has an operand of shape {shapes[0]}, which has no form {value.shape}")
        return value.shape, per_child
    if any(len(shape) != 1 for shape in shapes):  # softmax, outer
        raise ModelError(f"has operands of shapes {_listed(shapes)}; expected vectors")
    return tuple(shape[0] for shape in shapes), per_child


def _source(cell: Cell, value: Value) -> tuple[Shape, bool]:
    """As `computed`, for values without operands."""
    op, name = value.op, value.name
    if op == "constant":
        if not math.isfinite(value.constant) or len(value.shape) > 2:
            raise ModelError(f"is {value.constant!r}; expected a finite number")
        return value.shape, False
    if op in ("child", "children"):
        if name not in cell.states:
            raise ModelError(f"reads state {shown(name)!r}; expected one of {_names(cell.states)}")
        if op == "children":
            return cell.states[name], True
        if not 0 <= value.start < (cell.children or 0):
            places = "without places" if cell.children is None else f"of places 0 to {cell.children - 1}"
            raise ModelError(f"reads the child in place {value.start} of a cell {places}")
        return cell.states[name], False
    if op == "input":
        if name not in cell.inputs or cell.inputs[name].kind != "vector":
            raise ModelError(f"reads {shown(name)!r}, which is not an input of kind vector")
        return (cell.inputs[name].size,), False
    if name not in cell.weights:
        raise ModelError(f"reads weight {shown(name)!r}; expected one of {_names(cell.weights)}")
    array = cell.weights[name]
    if op == "weight":
        return array.shape, False
    inputs = list(cell.inputs.items())
    if not 0 <= value.start < len(inputs) or inputs[value.start][1].kind != "number":
        raise ModelError(f"reads input {value.start}, which is not an input of kind number")
    key, input_ = inputs[value.start]
    if array.ndim != 2 or len(array) != input_.size:
        raise ModelError(
            f"picks rows of weight {shown(name)!r} of shape {array.shape}; expected "
            f"({input_.size}, columns), as input {shown(key)!r} is below {input_.size}"
        )
    return array.shape[1:], False


def _check_value(cell: Cell, number: int, value: Value, where: str) -> None:
    begin = f"{where}: value {number} ({shown(value.op)})"
    if value.op not in OPERATORS:
        raise ModelError(f"{where}: value {number} has the unknown operator {shown(value.op)!r}")
    if len(value.of) != _OPERANDS.get(value.op, max(1, len(value.of))):
        raise ModelError(
            f"{begin} has {len(value.of)} operands; expected {_OPERANDS.get(value.op, 'at least 1')}"
        )
    if not all(type(operand) is int and 0 <= operand < number for operand in value.of):
        raise ModelError(f"{begin} has operands {shown(value.of)}; expected values before it")
    try:
        source = _OPERANDS.get(value.op) == 0
        of = [cell.values[operand] for operand in value.of]
        shape, per_child = _source(cell, value) if source else computed(value, of)
    except ModelError as error:
        raise ModelError(f"{begin} {error}") from None
    if shape and not _is_shape(shape):
        raise ModelError(f"{begin} has shape {shown(shape)}; expected sizes of at least 1")
    if shape != value.shape or per_child != value.per_child:
        raise ModelError(
            f"{begin} is said to have shape {value.shape}{_each(value.per_child)}; "
            f"it has {shape}{_each(per_child)}"
        )


def _check_outputs(cell: Cell, outputs: Mapping[str, int], where: str) -> None:
    if set(outputs) != set(cell.states):
        raise ModelError(f"{where}: it computes {_names(outputs)}; expected its states {_names(cell.states)}")
    for name, number in outputs.items():
        if type(number) is not int or not 0 <= number < len(cell.values):
            raise ModelError(f"{where}: state {shown(name)!r} is value {number!r} of {len(cell.values)}")
        value = cell.values[number]
        if value.per_child or value.shape != cell.states[name]:
            raise ModelError(
                f"{where}: state {shown(name)!r} has shape {value.shape}{_each(value.per_child)}; "
                f"expected {cell.states[name]}"
            )


def _is_shape(shape: Shape) -> bool:
    return all(type(size) is int and size >= 1 for size in shape) and math.prod(shape) < _MOST


def _each(per_child: bool) -> str:
    return " for each child" if per_child else ""


def _names(names: Iterable[str]) -> str:
    return shown(", ".join(map(repr, names)) or "none", most=200)


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))
