"""The layers behind a recursive model's readout, as the graph of an ordinary model over rows."""

from __future__ import annotations

import math

import numpy as np

from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import Network
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce
from hbtvm.recursive.cell import RecursiveModel

LIBRARY = "hbtvm"  # the training library in a recursive model's package


def head_of(model: RecursiveModel) -> Graph | None:
    """Return the graph of a model's layers; None if it has none.

    With classes, the last layer returns their scores (or probabilities after a softmax or a sigmoid); else
    its values are the prediction.
    """
    if not model.layers:
        return None
    columns = width_of(model)
    values: Node = Input(columns)
    for layer in model.layers:
        if layer.op == "linear":
            assert layer.weight is not None
            values = Contract(values, np.ascontiguousarray(layer.weight.T, np.float64)).checked()
            if layer.bias is not None:
                values = apply("add", values, layer.bias.astype(np.float64))
        else:
            values = softmax(values) if layer.op == "softmax" else apply(layer.op, values)
    predictor = _predictor(model, values)
    return Graph(
        LIBRARY,
        model.cell.name,
        InputSpec(columns),
        Network(columns, predictor.scores()),
        predictor.output_spec(),
    )


def width_of(model: RecursiveModel) -> int:
    """Return the number of numbers of a readout."""
    return math.prod(model.cell.states[model.readout.state])


def bare_output(model: RecursiveModel) -> OutputSpec:
    """Return the output of a model without layers: its readout."""
    width = width_of(model)
    return OutputSpec("regressor", width, {"response": apply("round_float32", Input(width))})


def _predictor(model: RecursiveModel, values: Node) -> Predictor:
    """Return the predictor for the last layer's values."""
    if not model.classes:
        return Predictor("regressor", {"response": values})
    classes = (np.array(model.classes),)
    last = model.layers[-1].op
    if values.width == 1:
        half = 0.5 if last == "sigmoid" else 0.0
        proba = values if last == "sigmoid" else apply("sigmoid", values)
        outputs = {"index": apply("greater", values, half), "proba": with_complement(proba)}
        return Predictor("classifier", outputs, classes)
    outputs = {"index": reduce("argmax", values)}
    outputs["proba"] = values if last in ("softmax", "sigmoid") else softmax(values)
    return Predictor("classifier", outputs, classes)
