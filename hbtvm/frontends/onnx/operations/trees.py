"""``TreeEnsembleClassifier`` and ``-Regressor`` of ai.onnx.ml, and ``TreeEnsemble`` of its version 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.forest_attributes import of_attributes, of_tensors
from hbtvm.frontends.onnx.forests import Forest, assembled
from hbtvm.frontends.onnx.operations.linear import matrix
from hbtvm.frontends.onnx.operations.transforms import (
    labelled,
    labels_of,
    probit,
    transform_of,
    transformed,
)
from hbtvm.frontends.onnx.values import Rows, Value, of_node
from hbtvm.graph.columns.steps import Encode, Lookup
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import Trees
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import PER_NODE_FACTS, CompareDtype, TreeEnsemble
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select

_MOST_COMBINED = 256  # bound of the trees of a minimum or maximum: each becomes a node


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees on a table, with outputs that the runtime can compute from the scores."""

    table: Table  # the trees' features
    trees: TreeEnsemble
    output: OutputSpec


@dataclass(frozen=True, eq=False)
class TreeOutput:
    """The origin of a tensor that is an output of trees: ``"label"``, ``"proba"`` or ``"response"``."""

    ensemble: Ensemble
    part: str


def _with_members(x: Rows, forest: Forest) -> Rows:
    """Append a column for each set of values that splits test: 1 inside, 0 outside."""
    if not forest.sets:
        return x
    if isinstance(x.content, Table):
        by_feature: dict[int, dict[float, None]] = {}
        for feature, values in forest.sets:
            by_feature.setdefault(feature, {}).update(dict.fromkeys(values))
        # NaN stays, so that it goes by the split's default direction.
        encoders = {feature: Encode((*values, float("nan"))) for feature, values in by_feature.items()}
        columns = list(x.content.columns)
        for feature, values in forest.sets:
            encoder = encoders[feature]
            inside = np.zeros(len(encoder))
            inside[[encoder.code(value) for value in values]] = 1.0
            inside[encoder.nan_code] = np.nan
            columns.append(x.content.columns[feature].then(encoder, Lookup(inside)))
        return Rows((None, len(columns)), x.dtype, Table(tuple(columns)))
    node, added = x.node(), list[Node]()
    for feature, values in forest.sets:
        column = select(node, [feature])
        equal = reduce("max", apply("equal", column, np.array(values)))
        added.append(apply("where", apply("isnan", column), np.nan, equal))
    return of_node(concat([node, *added]), (None, x.width + len(added)), x.dtype)


def _read(call: Call, forest: Forest) -> tuple[Rows, TreeEnsemble]:
    x = matrix(call, call.rows())
    compare: CompareDtype = "float64" if x.dtype == "float64" else "float32"
    trees = assembled(call, forest, x.width, compare)
    return _with_members(x, forest), trees


def _combined(call: Call, x: Rows, trees: TreeEnsemble, function: str) -> Node:
    """Return the least or largest leaf of all trees for each target."""
    if trees.n_trees > _MOST_COMBINED:
        raise call.unsupported(
            f"takes the {function} of {trees.n_trees:,} trees; at most {_MOST_COMBINED} are supported."
        )
    if trees.value_width != trees.n_outputs and trees.n_outputs > 1:
        raise call.unsupported(f"takes the {function} of trees with one target each, which is not supported.")
    source, parts = x.node(), list[Node]()
    for t in range(trees.n_trees):
        nodes = slice(trees.offset[t], trees.offset[t + 1])
        names = (
            "feature",
            "threshold",
            "left",
            "right",
            "default_left",
            "zero_as_missing",
            "category_set",
            "value",
            *(fact for fact in PER_NODE_FACTS if getattr(trees, fact) is not None),
        )
        parts.append(
            Trees(
                source,
                replace(
                    trees,
                    offset=trees.offset[t : t + 2] - trees.offset[t],
                    tree_output=trees.tree_output[t : t + 1],
                    base_score=np.zeros(trees.n_outputs),
                    divisor=1.0,
                    **{name: getattr(trees, name)[nodes] for name in names},
                ).validate(),
            )
        )
    total = parts[0]
    for part in parts[1:]:
        total = apply(function, total, part)
    return apply("add", total, trees.base_score)


def _regression(call: Call, forest: Forest, transform: str) -> Value:
    x, trees = _read(call, forest)
    shape = (None, trees.n_outputs)
    # The older operators always return float32.
    dtype = "float64" if forest.double and call.operation.kind == "TreeEnsemble" else "float32"
    if forest.aggregate in ("MIN", "MAX"):
        node = _combined(call, x, replace(trees, divisor=1.0), f"{forest.aggregate.lower()}imum")
    else:
        node = Trees(x.node(), trees)
        if transform == "NONE" and isinstance(x.content, Table):
            scores: Node = Input(trees.n_outputs)
            response = apply("round_float32", scores) if dtype == "float32" else scores
            spec = OutputSpec("regressor", scores.width, {"response": response}, keeps_axis=scores.width == 1)
            return Rows(shape, dtype, node, origin=TreeOutput(Ensemble(x.content, trees, spec), "response"))
    if trees.n_outputs == 1:
        # With a single target, ONNX Runtime applies this transform only.
        node = probit(node) if transform == "PROBIT" else node
    else:
        node = transformed(node, transform)
    return of_node(node, shape, dtype)


def _regressor(call: Call) -> Value:
    return _regression(call, of_attributes(call, "target"), transform_of(call))


def _ensemble(call: Call) -> Value:
    number = call.whole("post_transform", 0)
    if not 0 <= number <= 4:
        raise call.damaged(f"its post_transform is {number}.")
    transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[number]
    return _regression(call, of_tensors(call), transform)


def _classifier(call: Call) -> tuple[Value, ...]:
    labels = labels_of(call, names=("classlabels_strings", "classlabels_int64s"))
    forest, transform = of_attributes(call, "class", len(labels)), transform_of(call)
    x, trees = _read(call, forest)
    node = Trees(x.node(), trees)
    if len(labels) == 2:
        return _two_classes(call, forest, x, trees, node, labels, transform)
    if len(labels) == 1:
        raise call.unsupported("has one class label, which is not supported.")
    parts = (
        labelled(reduce("argmax", apply("round_float32", node)), labels),
        of_node(transformed(node, transform), (None, len(labels))),
    )
    if transform in ("NONE", "SOFTMAX", "LOGISTIC") and isinstance(x.content, Table):
        _mark(parts, Ensemble(x.content, trees, _spec(labels, transform, len(labels))))
    return parts


def _spec(labels: np.ndarray, transform: str, width: int) -> OutputSpec:
    """Return labels and probabilities from scores rounded to float32."""
    scores = apply("round_float32", Input(width))
    function = {"NONE": lambda x: x, "SOFTMAX": softmax, "LOGISTIC": sigmoid}[transform]
    response: Node = apply("round_float32", function(scores))
    if width == 1:
        index: Node = apply("greater", scores, 0.5 if transform == "NONE" else 0.0)
        proba: Node = apply("round_float32", with_complement(response))
    else:
        index, proba = reduce("argmax", scores), response
    classes = labels.astype(str).astype(object) if labels.dtype == object else labels
    return OutputSpec("classifier", width, {"index": index, "proba": proba}, (classes,))


def _mark(parts: tuple[Rows, Rows], ensemble: Ensemble) -> None:
    for value, part in zip(parts, ("label", "proba"), strict=True):
        value.origin = TreeOutput(ensemble, part)


def _two_classes(
    call: Call, forest: Forest, x: Rows, trees: TreeEnsemble, node: Node, labels: np.ndarray, transform: str
) -> tuple[Value, ...]:
    """Return the outputs for two classes, of which ONNX Runtime distinguishes many cases."""
    targets = sorted(set(forest.targets.tolist()))
    base = forest.base
    positive = bool(np.all(forest.weights >= 0))
    if len(targets) == 1:
        return _one_of_two(call, forest, x, trees, labels, transform, targets[0], positive)
    if len(base) == 2:
        # In ONNX Runtime, the second score is the first class's sum plus the second base value.
        second = apply("add", select(node, [0]), float(base[1] - base[0]))
        node = concat([apply("negative", second), second])
    elif len(base) == 1:
        node = apply("add", node, np.array([base[0], 0.0]))
    elif len(base):
        raise call.damaged(f"it has {len(base)} base values for two classes.")
    # The sign of the second score decides.
    labels = labels if labels.dtype == object else np.array([0, 1], np.int64)
    index = apply("greater", select(node, [1]), 0.0)
    return labelled(index, labels), of_node(transformed(node, transform), (None, 2))


def _one_of_two(
    call: Call, forest: Forest, x: Rows, trees: TreeEnsemble, labels: np.ndarray, transform: str, target: int,
    positive: bool,
) -> tuple[Value, ...]:  # fmt: skip
    """Return the outputs for two classes from the scores of one class."""
    base, threshold = forest.base, 0.5 if positive else 0.0
    if len(base) == 2 and target == 1:
        raise call.unsupported(
            "has two base values and scores of the second class only, which is not supported."
        )
    if len(base) == 2 or target == 1:
        # The other class's score is 0, whatever the base values.
        values = np.array([base[0] if len(base) == 2 else 0.0, 0.0])
        node = Trees(x.node(), replace(trees, base_score=values))
        index = apply("greater", select(node, [target]), threshold)
        return labelled(index, labels), of_node(transformed(node, transform), (None, 2))
    halved = replace(
        trees,
        n_outputs=1,
        value=trees.value[:, :1],
        tree_output=np.zeros(trees.n_trees, np.int32),
        base_score=base[:1].astype(np.float64) if len(base) else np.zeros(1),
    ).validate()
    node = Trees(x.node(), halved)
    index = apply("greater", node, threshold)
    if transform == "PROBIT":
        raise call.unsupported("has two labels, one score and PROBIT, which is not supported.")
    if transform == "LOGISTIC":
        both = concat([apply("sigmoid", apply("negative", node)), apply("sigmoid", node)])
    elif positive:
        both = concat([apply("subtract", 1.0, node), node])
    else:
        both = concat([apply("negative", node), node])
    parts = labelled(index, labels), of_node(both, (None, 2))
    if positive != (transform == "LOGISTIC") and isinstance(x.content, Table):
        _mark(parts, Ensemble(x.content, halved, _spec(labels, "NONE" if positive else "LOGISTIC", 1)))
    return parts


OPERATIONS: Mapping[str, Evaluate] = {
    "TreeEnsembleRegressor": _regressor,
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsemble": _ensemble,
}
"""By operator of the domain ai.onnx.ml."""
