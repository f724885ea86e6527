"""YDF's gradient boosted trees and random forests, and its CART trees, from their messages to a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.ydf import files
from hbtvm.frontends.ydf.columns import dictionary, features_of, rows_of
from hbtvm.frontends.ydf.files import Parts
from hbtvm.frontends.ydf.trees import Forest
from hbtvm.frontends.ydf.wire import Message
from hbtvm.graph.compose import compose
from hbtvm.graph.graph import Graph
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce, select

_CLASSIFICATION, _REGRESSION, _RANKING = 1, 2, 3
_TASKS = {
    0: "UNDEFINED", 4: "CATEGORICAL_UPLIFT", 5: "NUMERICAL_UPLIFT", 6: "ANOMALY_DETECTION",
    7: "SURVIVAL_ANALYSIS",
}  # fmt: skip
"""Tasks of a model that are not supported."""

_IDENTITY = {2: "SQUARED_ERROR", 4: "LAMBDA_MART_NDCG5", 5: "XE_NDCG_MART", 8: "MEAN_AVERAGE_ERROR", 9: ""}
_BINOMIAL, _MULTINOMIAL, _FOCAL, _POISSON = 1, 3, 6, 7
"""Losses of boosting."""

_VALUES, _ANY_VALUES = 16, 1 << 24
"""Bounds of the leaves' values: by byte of the nodes, and of any model."""


def from_folder(path: Path) -> Graph:
    """Read a folder of ``model.save``.

    Raises `UnsupportedModel` for other kinds of models, tasks, losses and splits. Raises `ModelError` if the
    folder is damaged.
    """
    return _graph(files.from_folder(path))


def from_bytes(content: bytes) -> Graph:
    """Read the bytes of ``model.serialize``. Raises errors as `from_folder`."""
    return _graph(files.from_bytes(content))


def read(record: Record) -> Graph:
    """Read a pickled model, whose state are the bytes of ``model.serialize``."""
    if not isinstance(record.state, (bytes, bytearray, memoryview)):
        raise ModelError(
            f"the YDF model is damaged: its state is {kind_of(record.state)}; pass the folder of model.save."
        )
    return from_bytes(bytes(record.state))


def _graph(parts: Parts) -> Graph:
    task = parts.model.whole(2)
    if task not in (_CLASSIFICATION, _REGRESSION, _RANKING):
        raise UnsupportedModel(
            f"the YDF model has the task {_TASKS.get(task, task)}, which is not supported; supported are "
            "classification, regression and ranking."
        )
    columns = parts.data_spec.messages(1)
    used = parts.model.integers(5)
    label = parts.model.whole(3)
    if not 0 <= label < len(columns):
        raise ModelError("the YDF model is damaged: it lacks the column of its labels.")
    features = features_of(columns, used)
    inputs, table = rows_of(features)
    labels = _labels(columns[label]) if task == _CLASSIFICATION else None
    boosted = parts.kind == "GRADIENT_BOOSTED_TREES"
    leaf, width, divisor = _leaves(parts, labels, boosted)
    if len(parts.nodes) * width > _ANY_VALUES + _VALUES * sum(map(len, parts.nodes)):
        raise UnsupportedModel(f"the YDF model has leaves of {width:,} classes, which are too many.")
    forest = Forest(parts.nodes, dict(zip(used, enumerate(features), strict=True)), leaf)
    trees = forest.trees(parts.header.whole(2))
    outputs = 1 if boosted else width
    start = np.zeros(width)
    if boosted:
        outputs = parts.header.whole(5, 1)
        start = parts.header.numbers(4, "<f4").astype(np.float64)
        if outputs < 1 or len(start) != outputs or not np.all(np.isfinite(start)):
            raise ModelError("the YDF model is damaged: its initial predictions don't fit its trees.")
    ensemble = assemble(
        trees,
        n_features=inputs.n_features,
        compare_dtype="float32",
        tree_output=np.arange(len(trees)) % outputs if boosted else np.zeros(len(trees)),
        base_score=start,
        divisor=divisor,
    )
    output = _boosted(parts, labels, task, outputs) if boosted else _averaged(parts, labels, width)
    graph = Graph("ydf", _NAMES[parts.kind], inputs, ensemble, output)
    return compose(inputs, table, graph, ())


_NAMES = {"GRADIENT_BOOSTED_TREES": "GradientBoostedTreesModel", "RANDOM_FOREST": "RandomForestModel"}


def _labels(column: Message) -> np.ndarray:
    """Return the labels as ``model.label_classes()`` does: strings, also of integerized labels."""
    spec = column.message(6)
    size = spec.whole(2)
    if not 2 <= size <= 1 << 16:
        raise ModelError(f"the YDF model is damaged: it has {size} labels.")
    if spec.whole(5):
        return np.arange(1, size).astype(str)
    names = dictionary(spec)
    known = {number: name for name, number in names.items() if number}
    if len(known) != size - 1 or len(names) < len(known):
        raise ModelError("the YDF model is damaged: its labels lack names.")
    return np.array([known[number] for number in range(1, size)])


def _leaves(
    parts: Parts, labels: np.ndarray | None, boosted: bool
) -> tuple[Callable[[Message], np.ndarray], int, float]:
    """Return the reader of a leaf's values, their number, and the divisor of their sum."""
    if boosted or labels is None:
        return _number, 1, 1.0 if boosted else float(max(1, parts.header.whole(2)))
    read = partial(_shares, classes=len(labels), votes=_votes(parts))
    return read, len(labels), float(max(1, parts.header.whole(2)))


def _number(node: Message) -> np.ndarray:
    return np.array([node.message(2).single(1)])


def _shares(node: Message, classes: int, votes: bool) -> np.ndarray:
    """Return the classes' shares of a leaf, or (`votes`) all for its likeliest class."""
    leaf = node.message(1)
    if votes:
        top = leaf.whole(1)
        if not 1 <= top <= classes:
            raise ModelError("the YDF model is damaged: a leaf has an unknown class.")
        return np.asarray(np.arange(1, classes + 1) == top, np.float64)
    counts = leaf.message(2).numbers(1, "<f8")
    if len(counts) != classes + 1 or not np.all(np.isfinite(counts)) or not counts.sum() > 0:
        raise ModelError("the YDF model is damaged: a leaf has no shares of its classes.")
    result: np.ndarray = counts[1:] / counts.sum()
    return result


def _rounded(node: Node) -> Node:
    return apply("round_float32", node)


def _averaged(parts: Parts, labels: np.ndarray | None, width: int) -> OutputSpec:
    """Return the outputs of a random forest."""
    scores = _rounded(Input(width))
    if labels is None:
        return OutputSpec("regressor", width, {"response": scores})
    index: Node = reduce("argmax", scores)
    if width == 2:
        # Of two classes YDF adds the second's shares in float32, and takes the second from one half on.
        half = _half(parts.header.whole(2)) if _votes(parts) else 0.5
        index = apply("greater_equal", select(scores, [1]), half)
    return OutputSpec("classifier", width, {"index": index, "proba": scores}, (labels,))


def _votes(parts: Parts) -> bool:
    """Return whether each tree of a random forest votes for a class."""
    return bool(parts.header.whole(3, 1))


def _half(trees: int) -> float:
    """Return a share of votes from which on their sum in float32 is at least one half."""
    votes = np.cumsum(np.full(trees, np.float32(1) / np.float32(trees)), dtype=np.float32)
    return (float(np.argmax(votes >= np.float32(0.5))) + 0.5) / trees


def _boosted(parts: Parts, labels: np.ndarray | None, task: int, outputs: int) -> OutputSpec:
    """Return the outputs of gradient boosted trees."""
    loss, raw = parts.header.whole(3), _rounded(Input(outputs))
    scores = {_BINOMIAL: 1, _FOCAL: 1, _MULTINOMIAL: outputs, _POISSON: 1, **dict.fromkeys(_IDENTITY, 1)}
    if scores.get(loss) != outputs or (labels is not None) != (loss in (_BINOMIAL, _FOCAL, _MULTINOMIAL)):
        raise UnsupportedModel(
            f"the YDF model has the loss {loss} with {outputs} scores, which is not supported; supported are "
            "YDF's own losses of classification, regression and ranking."
        )
    if labels is None:
        response = _rounded(apply("exp", raw)) if loss == _POISSON else raw
        kind = "ranker" if task == _RANKING else "regressor"
        return OutputSpec(kind, outputs, {"response": response, "raw": raw})  # type: ignore[arg-type]
    if len(labels) != (2 if loss != _MULTINOMIAL else outputs):
        raise ModelError(f"the YDF model is damaged: it has {outputs} scores of {len(labels)} labels.")
    if parts.header.whole(9):
        # Trained with apply_link_function=False, it returns raw scores.
        return OutputSpec("booster", outputs, {"response": raw, "raw": raw})
    if loss == _MULTINOMIAL:
        proba = _rounded(softmax(raw))
        index: Node = reduce("argmax", proba)
    else:
        second = _rounded(apply("sigmoid", raw))
        proba, index = _rounded(with_complement(second)), apply("greater_equal", second, 0.5)
    return OutputSpec("classifier", outputs, {"index": index, "proba": proba, "raw": raw}, (labels,))
