"""From treelite's checkpoints to graphs; predictions are those of ``treelite.gtil.predict``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import Tree, assemble, feature_count
from hbtvm.frontends.treelite.checkpoint import Header, Nodes, read
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.covers import cover_of
from hbtvm.graph.trees.ensemble import LEAF, CategorySet
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import sigmoid, signed_square, softmax
from hbtvm.operators.pointwise import apply
from hbtvm.words.printable import shown

_LEAF, _NUMBER, _CATEGORY = 0, 1, 2  # kinds of nodes
_LESS, _LESS_EQUAL, _GREATER, _GREATER_EQUAL = 2, 3, 4, 5  # comparisons

_LARGEST = 1 << 24  # largest category, as float32 holds no larger ones
_MOST_MEMBERS = 1 << 27  # bytes of all category sets, as few bytes of a file may claim any category


def from_bytes(content: bytes) -> Graph:
    """Read a checkpoint, as ``treelite.Model.serialize`` writes it.

    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if its version, its outputs or its
    postprocessor are not supported.
    """
    try:
        return _graph(*read(content))
    except ModelError:  # a ValueError as well
        raise
    except (ValueError, IndexError, OverflowError) as error:
        raise ModelError(f"the treelite checkpoint is damaged: {shown(error, most=200)}.") from error


def _graph(header: Header, nodes: list[Nodes]) -> Graph:
    targets, classes = len(header.classes), int(header.classes.max(initial=1))
    if targets > 1 and classes > 1:
        raise UnsupportedModel(
            "the treelite model has several targets of classes; a single one is supported."
        )
    n_outputs = targets * classes
    if len(header.base_scores) != n_outputs:
        raise ValueError(f"there are {len(header.base_scores)} base scores for {n_outputs} scores")
    width = header.leaf_shape[0] * header.leaf_shape[1]
    if not 0 < width <= n_outputs:
        raise ValueError(f"leaves have {width} values for {n_outputs} scores")
    first = np.maximum(header.target, 0) * classes + np.maximum(header.output_class, 0)
    budget = _Budget()
    n_features = feature_count(header.n_features)
    ensemble = assemble(
        [_tree(tree, width, n_features, budget) for tree in nodes],
        n_features=n_features,
        compare_dtype="float32" if header.dtype is np.float32 else "float64",
        tree_output=first,
        base_score=header.base_scores,
        divisor=_divisor(first, width, n_outputs) if header.average else 1.0,
    )
    raw: Node = Input(n_outputs)
    outputs = {"response": _response(header, raw), "raw": raw}
    if header.dtype is np.float32:
        outputs = {name: apply("round_float32", node) for name, node in outputs.items()}
    return Graph(
        "treelite", "Model", InputSpec(n_features), ensemble, OutputSpec("booster", n_outputs, outputs)
    )


def _divisor(first: np.ndarray, width: int, n_outputs: int) -> float:
    """Return the number of trees that add to each output."""
    counts = np.zeros(n_outputs + 1, np.int64)
    np.add.at(counts, first, 1)
    np.add.at(counts, first + width, -1)
    counts = np.cumsum(counts)[:-1]
    if counts.min() != counts.max():
        raise UnsupportedModel("the treelite model averages over different numbers of trees by output.")
    return float(counts[0])


class _Budget:
    """Bounds the memory of category sets."""

    def __init__(self) -> None:
        self.left = _MOST_MEMBERS

    def set_of(self, categories: np.ndarray, right_matches: bool) -> CategorySet:
        """Return the categories that go left."""
        largest = int(categories.max(initial=0))
        self.left -= largest + 1
        if largest > _LARGEST or self.left < 0:
            raise UnsupportedModel(
                f"the treelite model has categories up to {largest:,}, which are too many."
            )
        member = np.full(largest + 1, right_matches)
        member[categories] = not right_matches
        return CategorySet(member, right_matches)


def _tree(nodes: Nodes, width: int, n_features: int, budget: _Budget) -> Tree:
    kind, comparison, threshold = nodes["kind"], nodes["comparison"], nodes["threshold"]
    leaf, number = kind == _LEAF, kind == _NUMBER
    if not np.isin(kind, (_LEAF, _NUMBER, _CATEGORY)).all():
        raise ValueError("a node has an unknown kind")
    if not np.isin(comparison[number], (_LESS, _LESS_EQUAL, _GREATER, _GREATER_EQUAL)).all():
        raise UnsupportedModel("the treelite model compares numbers for equality, which is not supported.")
    feature = nodes["feature"]
    if np.any(feature[~leaf] < 0) or np.any(feature[~leaf] >= n_features):
        raise ValueError("a split reads an unknown column")
    # x > t goes left where x <= t goes right, and x >= t where x < t does.
    swapped = number & (comparison >= _GREATER)
    strict = (comparison == _LESS) | (comparison == _GREATER_EQUAL)
    below = np.nextafter(threshold, threshold.dtype.type(-np.inf))
    left, right = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
    sets = {}
    for node in np.flatnonzero(kind == _CATEGORY).tolist():
        begin, end = int(nodes["categories_begin"][node]), int(nodes["categories_end"][node])
        if not 0 <= begin <= end <= len(nodes["categories"]):
            raise ValueError("a node has no categories")
        sets[node] = budget.set_of(nodes["categories"][begin:end], bool(nodes["right_matches"][node]))
    return Tree(
        feature=np.where(leaf, LEAF, feature).astype(np.int64),
        threshold=np.where(strict, below, threshold).astype(np.float64),
        left=np.where(leaf, LEAF, np.where(swapped, right, left)),
        right=np.where(leaf, LEAF, np.where(swapped, left, right)),
        default_left=nodes["default_left"] ^ swapped,
        value=_values(nodes, leaf, width),
        categories=sets,
        cover=_cover(nodes),
        leaf_id=np.arange(len(leaf)),
    )


def _cover(nodes: Nodes) -> np.ndarray | None:
    """Return the nodes' sums of Hessians, else their numbers of rows; None if a node has neither."""
    for name in ("sum_hess", "data_count"):
        known = nodes[f"has_{name}"]
        if len(known) == len(nodes["kind"]) and known.all():
            return cover_of(nodes[name], len(known))
    return None


def _values(nodes: Nodes, leaf: np.ndarray, width: int) -> np.ndarray:
    """Return the leaves' values, shape (nodes, width)."""
    if width == 1:
        return np.where(leaf, nodes["value"], 0.0).astype(np.float64)[:, None]
    begin, values = nodes["leaf_begin"][leaf].astype(np.int64), nodes["leaf_vector"]
    if np.any(nodes["leaf_end"][leaf].astype(np.int64) - begin != width):
        raise ValueError(f"a leaf has another number of values than {width}")
    result = np.zeros((len(leaf), width))
    result[leaf] = values[begin[:, None] + np.arange(width)]
    return result


def _response(header: Header, raw: Node) -> Node:
    alpha = header.sigmoid_alpha
    functions: dict[str, Callable[[Node], Node]] = {
        "identity": lambda x: x,
        "identity_multiclass": lambda x: x,
        "signed_square": signed_square,
        "hinge": lambda x: apply("greater", x, 0.0),
        "sigmoid": lambda x: sigmoid(x, alpha),
        "multiclass_ova": lambda x: sigmoid(x, alpha),
        "exponential": lambda x: apply("exp", x),
        "exponential_standard_ratio": lambda x: apply("exp2", apply("divide", x, -header.ratio)),
        "logarithm_one_plus_exp": lambda x: apply("log1p", apply("exp", x)),
        "softmax": softmax,
    }
    if header.postprocessor not in functions:
        raise UnsupportedModel(
            f"the treelite postprocessor '{shown(header.postprocessor, 40)}' is not supported; supported are "
            f"{', '.join(functions)}."
        )
    if not 0 < alpha < np.inf or not 0 < header.ratio < np.inf:
        raise ValueError("a parameter of the postprocessor is not above 0")
    if header.postprocessor == "softmax" and raw.width < 2:
        raise ValueError("softmax of a single score")
    return functions[header.postprocessor](raw)
