"""From the outputs of an evaluated ONNX graph to a `Graph`: labels, probabilities, responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.onnx.joining import Targets
from hbtvm.frontends.onnx.operations.reductions import Extreme
from hbtvm.frontends.onnx.operations.trees import Ensemble, TreeOutput
from hbtvm.frontends.onnx.reading import Document
from hbtvm.frontends.onnx.values import Known, Rows, plain
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.compose import compose, of_nodes
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.lower_network import lower
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Constant, Node, in_order
from hbtvm.operators.rounding import loosened
from hbtvm.operators.shapes import concat
from hbtvm.words.printable import shown

_SCORES = "score_samples"
"""The converters' name of the output ``score_samples``, behind labels and probabilities or decisions."""

_MOST_OPERATORS = 4096  # bound of a network's operators, which a kernel compiles together


def graph_of(document: Document, inputs: InputSpec, known: Mapping[str, Known]) -> Graph:
    """Return the graph of a model.

    `known`: the values of its names.
    Raises `UnsupportedModel` if its outputs are not those of a `Predictor`, or an operator is not supported.
    Raises `ModelError` if an output is not computed.
    """
    outputs, left = _chosen(document, known)
    model = _name(document)
    fast = _trees_alone(outputs)
    if fast is not None:
        graph = _of_trees(fast, inputs, model)
        return replace(graph, rewrites=(*left, *graph.rewrites)) if left else graph
    predictor = predictor_of(outputs)
    scores, names = loosened(predictor.scores()), inputs.feature_names
    operators = sum(not isinstance(node, Constant) for node in in_order(scores))
    if operators > _MOST_OPERATORS:
        raise UnsupportedModel(
            f"the ONNX graph computes {operators:,} operators for each row; at most {_MOST_OPERATORS:,} are "
            "supported."
        )
    texts = any(value.dtype == "str" and value.levels is None for value in _rows(known))
    columns = tuple(Column(Raw(i)) for i in range(inputs.n_features))
    raw = Table(columns) if names is None and not texts else None
    graph = of_nodes("onnx", model, inputs, scores, predictor.output_spec(), raw, lower)
    return replace(graph, rewrites=(*left, *graph.rewrites))


def _chosen(document: Document, known: Mapping[str, Known]) -> tuple[dict[str, Rows], tuple[str, ...]]:
    """Choose labels with their scores, or else the first output; return them, and a sentence on others."""
    values: dict[str, Known] = {}
    for port in document.body.outputs:
        value = known.get(port.name)
        if value is None:
            raise ModelError(f"the ONNX output '{shown(port.name, 60)}' is not computed.")
        if isinstance(value, UnsupportedModel) or (isinstance(value, Rows) and value.width):
            values[port.name] = value
    if not values:
        raise UnsupportedModel("no output of the ONNX model depends on its rows.")
    names, tensors = list(values), list(values.values())
    labels = [isinstance(value, Rows) and _is_label(value, alone=False) for value in tensors]
    kept = names[:1]
    levels = tensors[0].levels if isinstance(tensors[0], Rows) and labels[0] else None
    by_class = levels is not None and len(levels) == len(tensors) - 1 and not any(labels[1:])
    if by_class and all(isinstance(value, Rows) and value.width == 1 for value in tensors):
        # A column for each class.
        kept = names
    elif len(names) > 1 and labels[0] != labels[1]:
        kept = names[:2] if labels[0] or _of_classes(tensors[1], tensors[0]) else kept
        third = tensors[2] if len(kept) == 2 and names[2:3] == [_SCORES] else None
        if isinstance(third, Rows) and third.width == 1 and third.dtype.startswith("float"):
            kept = names[:3]
    chosen: dict[str, Rows] = {}
    for name in kept:
        value = values[name]
        if isinstance(value, UnsupportedModel):
            raise value
        assert isinstance(value, Rows)
        chosen[name] = value
    left = [name for name in names if name not in chosen]
    if not left:
        return chosen, ()
    named = ", ".join(repr(shown(name, 40)) for name in left)
    return chosen, (f"the outputs {named} of the ONNX model are left out",)


def _of_classes(label: Known, scores: Known) -> bool:
    """Return whether labels have as many values as scores have columns."""
    if not isinstance(label, Rows) or not isinstance(scores, Rows) or label.levels is None:
        return False
    return len(label.levels) == max(2, scores.width)


def _rows(known: Mapping[str, Known]) -> list[Rows]:
    return [value for value in known.values() if isinstance(value, Rows)]


def _name(document: Document) -> str:
    """Return the model's name: its operator of ai.onnx.ml that predicts, else its last."""
    kinds = [operation.kind for operation in document.body.operations]
    predicts = [kind for kind in kinds if kind.endswith(("Classifier", "Regressor", "Ensemble"))]
    return shown((predicts or kinds or ["graph"])[-1], 60)


def _trees_alone(outputs: Mapping[str, Rows]) -> Ensemble | None:
    """Return the trees that compute all outputs; None if others do."""
    origins = [value.origin for value in outputs.values()]
    if not all(isinstance(origin, TreeOutput) for origin in origins):
        return None
    parts = [origin.part for origin in origins]
    same = all(origin.ensemble is origins[0].ensemble for origin in origins)
    if not same or sorted(parts) not in (["response"], ["label", "proba"], ["label"]):
        return None
    if parts[0] == "response" and len(next(iter(outputs.values())).shape) != 2:
        return None
    ensemble = origins[0].ensemble
    classes = [
        value.levels
        for value, origin in zip(outputs.values(), origins, strict=True)
        if origin.part == "label"
    ]
    if classes:
        if classes[0] is None:
            return None
        # Labels may have been cast.
        spec = replace(ensemble.output, classes=(_labels(classes[0]),))
        return Ensemble(ensemble.table, ensemble.trees, spec)
    return ensemble  # type: ignore[no-any-return]


def _of_trees(ensemble: Ensemble, inputs: InputSpec, model: str) -> Graph:
    """Return the graph of trees on a table."""
    trees, table = ensemble.trees, ensemble.table
    if trees.compare_dtype == "float32":
        # The comparison rounds anyway.
        table = plain(table)
    last = Graph("onnx", model, InputSpec(len(table)), trees, ensemble.output)
    bare = all(column.source == Raw(i) and not column.steps for i, column in enumerate(table.columns))
    if bare and len(table) == inputs.n_features and inputs.feature_names is None:
        return last
    return compose(inputs, table, last, ())


def predictor_of(values: Mapping[str, Rows]) -> Predictor:
    """Return the predictor of the model's outputs, given by name.

    Raises `UnsupportedModel` if their meaning is not clear.
    """
    if list(values)[2:] == [_SCORES]:
        first = predictor_of({name: value for name, value in values.items() if name != _SCORES})
        return replace(first, outputs={**first.outputs, "score": _numbers(values[_SCORES])})
    alone = len(values) == 1
    labels = [value for value in values.values() if _is_label(value, alone)]
    scores = [value for value in values.values() if not any(value is label for label in labels)]
    if not labels:
        return _response(scores[0])
    (label,) = labels
    outputs: dict[str, Node] = {}
    extreme = label.origin.kind if isinstance(label.origin, Extreme) else ""
    if label.width > 1 or (label.levels is not None and extreme != "argmin"):
        return _classifier(label, scores)
    # Labels without levels: of clusters, or 1 and -1 of outliers.
    numbers = [_numbers(score) for score in scores]
    if len(scores) == 1 and scores[0].width == 1:
        outputs = {"index": _numbers(label), "decision": numbers[0]}
        return Predictor("anomaly", outputs, label_dtype="int64")
    outputs["response"] = _numbers(label)
    if scores:
        outputs["decision"] = numbers[0]
    return Predictor("clusterer", outputs, label_dtype="int64")


def _classifier(label: Rows, scores: Sequence[Rows]) -> Predictor:
    """Return labels and probabilities: for each target, or of class 1 of each."""
    outputs: dict[str, Node] = {}
    if scores:
        outputs["proba"] = concat([_numbers(score) for score in scores])
    parts = _targets(label, scores)
    if parts:
        outputs = {"index": concat([_positions(part) for part in parts]), **outputs}
        kind: Any = object if label.dtype == "str" else label.dtype
        classes = tuple(_labels(np.asarray(part.levels).astype(kind)) for part in parts)
        return Predictor("classifier", outputs, classes)
    if label.levels is None or (
        label.width > 1 and scores and outputs["proba"].width != label.width * len(label.levels)
    ):
        outputs = {"index": _numbers(label), **outputs}
        return Predictor("classifier", outputs, keeps_axis=True, label_dtype=label.dtype)
    outputs = {"index": _positions(label), **outputs}
    return Predictor("classifier", outputs, (_labels(label.levels),) * label.width)


def _targets(label: Rows, scores: Sequence[Rows]) -> tuple[Rows, ...]:
    """Return the labels of each target, if they and the probabilities have several; else an empty tuple."""
    parts = label.origin.parts if isinstance(label.origin, Targets) else ()
    if any(part.width != 1 for part in parts) or len(parts) != label.width or len(parts) < 2:
        return ()
    if not scores:
        return parts
    score_parts = scores[0].origin.parts if isinstance(scores[0].origin, Targets) else ()
    same = [part.width for part in score_parts] == [np.size(np.asarray(part.levels)) for part in parts]
    return parts if same and len(scores) == 1 else ()


def _is_label(value: Rows, alone: bool = True) -> bool:
    """Return whether a tensor holds labels for each row.

    `alone`: whether the model has no other output; integers may be any numbers then.
    """
    if not ("int" in value.dtype or value.dtype in ("str", "bool")):
        return False
    listed = value.levels is not None
    if alone:
        return listed if value.dtype == "str" else value.width == 1 and (listed or value.dtype == "bool")
    return listed or value.dtype != "str"


def _labels(levels: np.ndarray) -> np.ndarray:
    """Return labels in the runtime's form."""
    return levels.astype(str).astype(object) if levels.dtype == object else levels


def _positions(value: Rows) -> Node:
    """Return the positions in the levels."""
    return _numbers(Rows(value.shape, "int64", value.content))


def _numbers(value: Rows) -> Node:
    if value.dtype == "str" and value.levels is None:
        raise UnsupportedModel("the ONNX model's output is its input's strings.")
    if value.axis:
        # Targets come first, then the rows.
        order = np.moveaxis(value.grid(), value.axis, 0)
        value = value.take(order, (None, value.width))
    return value.node()


def _response(value: Rows) -> Predictor:
    if value.dtype == "str":
        raise UnsupportedModel("the ONNX model's output is strings that are not labels; not supported.")
    if value.axis:
        raise UnsupportedModel(
            f"the ONNX model's output has the shape {value.shape}, which is not supported."
        )
    keeps = len(value.shape) > 1
    dtype = None if value.dtype == "float64" else value.dtype
    return Predictor("regressor", {"response": value.node()}, keeps_axis=keeps, label_dtype=dtype)
