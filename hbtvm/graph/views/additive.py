"""Scores as sums of terms of a single raw column each, found in a network's operators.

Splines, bins and quantiles before a linear model, naive Bayes, discriminants and bagged linear models have
this form. Classifiers without a decision function are read before their link: a sigmoid, or a softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Network
from hbtvm.graph.views.view import NoView
from hbtvm.operators.base import Input, Node, evaluate, in_order, rewrite
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import softmax
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.products import Contract, LinearSum
from hbtvm.operators.shapes import Concat, Reduce, Repeat, Select, concat, select
from hbtvm.operators.tables import Lookup

_NOBODY, _SEVERAL = -1, -2  # owners of constants, and of columns of several raw columns
_BY_COLUMN = frozenset(("bucketize", "interpolate"))
_MOST_WEIGHTS = 1 << 24

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Columns with one owner each, and their weights in a sum.

    `owner`: int32, shape (B,): the raw column of each; -1 for constants.
    `weight`: float64, shape (B, O).
    """

    columns: Node
    owner: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Sum:
    """``constant`` (float64, shape (O,)) plus the weighted columns of all parts."""

    parts: tuple[Part, ...]
    constant: np.ndarray

    def times(self, matrix: np.ndarray) -> Sum:
        """Return the sum times a matrix, shape (O, P)."""
        parts = tuple(replace(part, weight=part.weight @ matrix) for part in self.parts)
        return Sum(parts, self.constant @ matrix)


class Additive:
    """The sums of a network's nodes.

    `player`: int32, shape (features,): the raw column behind each column of the input.
    """

    def __init__(self, player: np.ndarray) -> None:
        self._player = player
        self._owners: dict[int, np.ndarray] = {}

    def sum_of(self, node: Node) -> Sum | None:
        """Return a node as a sum of columns with one owner each; None if it is none."""
        for inner in in_order(node):
            if id(inner) not in self._owners:
                self._owners[id(inner)] = self._owners_of(inner)
        return self._times(node, np.eye(node.width))

    def _owners_of(self, node: Node) -> np.ndarray:
        """Return each column's raw column; -1 for constants, -2 for functions of several."""
        read = [self._owners[id(x)] for x in node.inputs]
        if isinstance(node, Input):
            return self._player
        if not read:
            return np.full(node.width, _NOBODY, np.int32)
        if isinstance(node, Elementwise):
            return _shared(np.stack([np.broadcast_to(owner, node.width) for owner in read]))
        if node.kind in _BY_COLUMN:
            return read[0]
        if isinstance(node, Select | Repeat):
            return np.asarray(read[0][_copied(node)])
        if isinstance(node, Concat):
            return np.concatenate(read)
        if isinstance(node, Lookup):
            return np.asarray(read[0][node.column])
        if isinstance(node, Reduce):
            return _shared(read[0].reshape(node.groups, -1).T)
        return np.full(node.width, _shared(np.concatenate(read)[:, None])[0], np.int32)

    def _times(self, node: Node, matrix: np.ndarray) -> Sum | None:
        """Return a node times a matrix, shape (width, O), as a sum; None if it is none.

        Matrices go from the scores to the columns, so that they have few columns however wide a node is.
        """
        owner = self._owners[id(node)]
        if (owner == _NOBODY).all():
            return Sum((), _value(node) @ matrix)
        if (owner != _SEVERAL).all():
            return Sum((Part(node, owner, matrix),), np.zeros(matrix.shape[1]))
        if isinstance(node, Distance) and node.metric == "squared_euclidean":
            return self._squares(node, matrix)
        if isinstance(node, LinearSum):
            return self._linear(node, matrix)
        if isinstance(node, Elementwise):
            return self._of_elementwise(node, matrix)
        if isinstance(node, Contract):
            return self._times(node.x, node.weight @ matrix)
        if isinstance(node, Select | Repeat):
            moved = np.zeros((node.x.width, matrix.shape[1]))
            np.add.at(moved, _copied(node), matrix)
            return self._times(node.x, moved)
        if isinstance(node, Concat):
            ends = np.cumsum([part.width for part in node.parts])[:-1]
            return self._total(zip(node.parts, np.split(matrix, ends), strict=True))
        if isinstance(node, Reduce) and node.function in ("sum", "mean"):
            size = node.x.width // node.groups
            every = np.repeat(matrix, size, axis=0)
            return self._times(node.x, every if node.function == "sum" else every / size)
        return None

    def _total(self, products: Iterable[tuple[Node, np.ndarray]]) -> Sum | None:
        """Return the sum of nodes times matrices."""
        parts, constants = list[Part](), []
        for node, matrix in products:
            found = self._times(node, matrix)
            if found is None:
                return None
            parts += found.parts
            constants.append(found.constant)
        return Sum(tuple(parts), np.sum(constants, axis=0))

    def _of_elementwise(self, node: Elementwise, matrix: np.ndarray) -> Sum | None:
        """Return sums, differences and multiples by constants as sums."""

        def of(x: Node, factor: np.ndarray | float) -> tuple[Node, np.ndarray]:
            scaled = np.reshape(factor, (-1, 1)) * matrix
            return x, scaled if x.width == node.width else scaled.sum(axis=0, keepdims=True)

        if node.function == "negative":
            return self._times(*of(node.inputs[0], -1.0))
        if node.function not in ("add", "subtract", "multiply", "divide"):
            return None
        first, second = node.inputs
        if node.function in ("add", "subtract"):
            return self._total((of(first, 1.0), of(second, 1.0 if node.function == "add" else -1.0)))
        if node.function == "multiply" and self._is_constant(first):
            first, second = second, first
        if not self._is_constant(second):
            return None
        factor = _value(second)
        return self._times(*of(first, factor if node.function == "multiply" else 1 / factor))

    def _is_constant(self, node: Node) -> bool:
        return bool((self._owners[id(node)] == _NOBODY).all())

    def _squares(self, node: Distance, matrix: np.ndarray) -> Sum | None:
        """Return squared distances as the sum of the squares of each column's difference."""
        owner = self._owners[id(node.x)]
        if (owner == _SEVERAL).any() or node.points.size * node.width > _MOST_WEIGHTS:
            return None
        repeated = Repeat(node.x, node.width, tiled=True)
        difference = apply("subtract", repeated, node.points.reshape(-1))
        if node.scale is not None:
            difference = apply("multiply", difference, node.scale.reshape(-1))
        weight = np.repeat(matrix, node.x.width, axis=0)
        square = apply("square", difference)
        return Sum((Part(square, np.tile(owner, node.width), weight),), np.zeros(matrix.shape[1]))

    def _linear(self, node: LinearSum, matrix: np.ndarray) -> Sum | None:
        """Return a linear model's sum as a column for each raw column and output."""
        owner = self._owners[id(node.x)]
        if (owner == _SEVERAL).any():
            return None
        raws = np.unique(np.concatenate([owner[node.feature], owner[node.code_feature]]))
        if (len(node.feature) + len(node.entries)) * node.width * len(raws) > _MOST_WEIGHTS:
            return None
        columns, means = by_place(node, np.searchsorted(raws, owner), len(raws))
        weight = np.repeat(matrix, len(raws), axis=0)
        part = Part(columns, np.tile(raws, node.width).astype(np.int32), weight)
        return Sum((part,), means @ matrix)


def _copied(node: Select | Repeat) -> np.ndarray:
    """Return the column of its input that each column is a copy of."""
    if isinstance(node, Select):
        return node.indices
    every = np.arange(node.x.width)
    return np.tile(every, node.times) if node.tiled else np.repeat(every, node.times)


def by_place(sums: LinearSum, place: np.ndarray, places: int) -> tuple[LinearSum, np.ndarray]:
    """Return a linear model's terms, and the means that are taken from its tables.

    A category's term is relative to the mean over categories.

    `place`: int, shape (features,): which of `places` terms each feature adds to.
    Returns the sum whose outputs are the terms, (outputs, places), and means, float64, shape (outputs,).
    """

    def apart(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
        result = np.zeros((len(weights), sums.width, places))
        result[np.arange(len(weights)), :, place[features]] = weights
        return result.reshape(len(weights), sums.width * places)

    entries, means = sums.entries.copy(), np.zeros(sums.width)
    for table in np.split(entries, np.cumsum(sums.sizes, dtype=np.int64)[:-1]):
        # The last entry is for values that are none of the categories.
        if len(table) > 1:
            mean = table[:-1].mean(axis=0)
            means += mean
            table -= mean
    columns = replace(
        sums,
        weight=apart(sums.weight, sums.feature),
        missing=apart(sums.missing, sums.feature),
        entries=apart(entries, np.repeat(sums.code_feature, sums.sizes)),
    )
    return columns, means


def terms(network: Network, total: Sum, width: int) -> Network:
    """Return the network whose outputs are each raw column's terms, with the base value behind them.

    Raises `NoView` if it has too many weights.

    `width`: number of raw columns.
    """
    outputs = len(total.constant)
    base = np.zeros((outputs, width + 1))
    base[:, -1] = total.constant
    value: Any = base.reshape(-1)
    for part in total.parts:
        if part.weight.size * (width + 1) > _MOST_WEIGHTS:
            raise NoView(f"its {part.weight.size:,} weights are too many to tell apart by column")
        weight = np.zeros((len(part.owner), outputs, width + 1))
        place = np.where(part.owner == _NOBODY, width, part.owner)
        weight[np.arange(len(place)), :, place] = part.weight
        value = apply("add", Contract(part.columns, weight.reshape(len(place), -1)), value)
    return Network(network.n_features, value)


def score_of(graph: Graph, read: Callable[[Node], T | None], times: Callable[[T, np.ndarray], T]) -> T | None:
    """Return what `read` makes of a model's scores before their link; None if it reads none.

    Classifiers of two classes have the second class's alone, or its score less the first's before a softmax.

    `times`: from such scores to their product with a matrix.
    """
    anchor = graph.anchor
    if not isinstance(anchor, Network):
        return None
    two = [len(labels) for labels in graph.output.classes] == [2]

    def second(node: Node, first: float) -> T | None:
        found = read(node)
        if found is None or not two or node.width != 2:
            return found
        return times(found, np.array([[first], [1.0]]))

    outputs = graph.output.over(anchor.output)
    scores = outputs.get("raw", outputs.get("decision", outputs.get("proba", outputs.get("response"))))
    if scores is None:
        return None
    found = second(_narrowed(scores), 0.0)
    if found is not None or "proba" not in outputs:
        return found
    proba = _narrowed(outputs["proba"])
    for node in reversed(in_order(proba)):
        fits = node.width in (1, proba.width) and not isinstance(node, Input)
        if fits and _passes(proba, node):
            found = second(node, -1.0)
            if found is not None:
                return found if _is_link(proba, node) else None
    return None


def _narrowed(node: Node) -> Node:
    """Return columns of several nodes side by side without the nodes of which there is no column."""
    if not isinstance(node, Select) or not isinstance(node.x, Concat):
        return node
    ends = np.cumsum([part.width for part in node.x.parts])
    owner = np.searchsorted(ends, node.indices, side="right")
    used = np.unique(owner)
    kept = concat([node.x.parts[i] for i in used])
    first = np.zeros(len(ends), np.int64)
    first[used] = np.cumsum([0, *(node.x.parts[i].width for i in used)])[:-1]
    before = ends - [part.width for part in node.x.parts]
    return select(kept, (node.indices - before[owner] + first[owner]).tolist())


def _passes(output: Node, through: Node) -> bool:
    """Return whether an output reads the input through a node only."""
    reads = dict[int, bool]()
    for node in in_order(output):
        past = isinstance(node, Input) or any(reads[id(x)] for x in node.inputs)
        reads[id(node)] = past and node is not through
    return not reads[id(output)]


def _is_link(proba: Node, scores: Node) -> bool:
    """Return whether probabilities are the sigmoid of a score, or the softmax of scores."""
    leaf = Input(scores.width)
    (replaced,) = rewrite([proba], lambda node: leaf if node is scores else node)
    link = apply("sigmoid", leaf) if scores.width == 1 else softmax(leaf)
    points = np.random.default_rng(0).normal(size=(64, scores.width)) * 3
    got, want = evaluate([replaced, link], lambda leaf: points)
    if scores.width == 1:
        got = got[:, -1:]
    return got.shape == want.shape and bool(np.allclose(got, want, rtol=1e-9, atol=1e-12))


def _shared(owners: np.ndarray) -> np.ndarray:
    """Return the owner of functions of several columns: int32, shape (columns,).

    `owners`: shape (read, columns).
    """
    largest = owners.max(axis=0)
    others = np.where(owners == _NOBODY, largest, owners)
    return np.where((others == largest).all(axis=0), largest, _SEVERAL).astype(np.int32)


def _value(node: Node) -> np.ndarray:
    """Return a constant's values, float64, shape (width,)."""
    values = evaluate([node], lambda leaf: np.zeros((1, leaf.width)))[0]
    return np.array(np.broadcast_to(values, (1, node.width))[0], np.float64)
