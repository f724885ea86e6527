"""An ONNX model's inputs as columns: a tensor of many columns, or columns of a frame by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.onnx.reading import Body, Port
from hbtvm.frontends.onnx.values import MOST_COLUMNS, Rows
from hbtvm.frontends.onnx.widths import width_of
from hbtvm.graph.columns.steps import Cast, Step
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.words.printable import shown

Constants = Callable[[], Mapping[str, np.ndarray]]


def inputs_of(body: Body, constants: Constants) -> tuple[InputSpec, dict[str, Rows]]:
    """Return the model's input specification, and the tensors of its inputs.

    `body`: the model's graph.
    `constants`: computes the graph's constants, if the shape of an input lacks the number of columns.
    With several inputs, columns have names: the input's name for its only column, else the name with ``_0``,
    ``_1``, and so on. Raises `ModelError` if there is no input. Raises `UnsupportedModel` if an input is not
    a tensor of rows, or its number of columns is unknown.
    """
    if not body.inputs:
        raise ModelError("the ONNX graph has no inputs.")
    tensors: dict[str, Rows] = {}
    names: list[str] = []
    at = 0
    for port in body.inputs:
        shape = _shape(port, body, constants)
        width = shape[1] if len(shape) == 2 else 1
        assert width is not None and port.dtype is not None
        if at + width > MOST_COLUMNS:
            raise UnsupportedModel(
                f"the ONNX model reads {at + width:,} columns; at most {MOST_COLUMNS:,} are supported."
            )
        # Callers may pass another type of floats than the model declares.
        steps: tuple[Step, ...] = (Cast(port.dtype),) if port.dtype in ("float32", "float64") else ()  # type: ignore[arg-type]
        columns = tuple(Column(Raw(at + i), steps) for i in range(width))
        tensors[port.name] = Rows(shape, port.dtype, Table(columns))
        names += [port.name] if width == 1 else [f"{port.name}_{i}" for i in range(width)]
        at += width
    named = len(body.inputs) > 1
    if named and len(set(names)) < len(names):
        raise UnsupportedModel("the ONNX model's inputs have columns of the same name.")
    # A single tensor with a single axis: rows are its values.
    values = not named and len(_shape(body.inputs[0], body, constants)) == 1
    return InputSpec(at, tuple(names) if named else None, by_name=named, rows_are_values=values), tensors


def _shape(port: Port, body: Body, constants: Constants) -> tuple[int | None, ...]:
    """Return an input's shape, one or two axes, with None for the rows."""
    where = f"the ONNX input '{shown(port.name, 60)}'"
    if port.dtype is None:
        raise UnsupportedModel(f"{where} is not a tensor of numbers, bools or strings.")
    shape = port.shape if port.shape is not None else (None, None)
    if not 1 <= len(shape) <= 2:
        raise UnsupportedModel(f"{where} has {len(shape)} axes; one or two are supported.")
    if len(shape) == 1:
        return (None,)
    width = shape[1] or width_of(port.name, body, constants())
    if width is None:
        raise UnsupportedModel(
            f"{where} does not say how many columns it has, and no operator that reads it does; set them in "
            "the file (model.graph.input[i].type.tensor_type.shape.dim[1].dim_value)."
        )
    return None, width
