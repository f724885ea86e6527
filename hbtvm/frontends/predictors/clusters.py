"""scikit-learn's clusterers that predict, and nearest centroids."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.matrices import matrix
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, classes_of, floats, floats_of
from hbtvm.frontends.transformers.projections.matrices import finite
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node, constant
from hbtvm.operators.distances import Distance, Take
from hbtvm.operators.formulas import softmax
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce, select

MOST_CLUSTERS = 1 << 12  # bound of a `BisectingKMeans`, with a weight for each pair of cluster and fork


def k_means(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``KMeans`` or ``MiniBatchKMeans``: the position of the nearest centre."""
    return _nearest(record, table, where, "int32")


def nearest_centre(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MeanShift`` or ``AffinityPropagation``; the latter has no centres if it did not converge."""
    if "cluster_centers_" not in record:
        raise where.unsupported("has no centres (affinity='precomputed'), so it predicts nothing.")
    if not matrix(record, "cluster_centers_").size:
        return Predictor("clusterer", {"response": constant(-1.0)}, label_dtype="int64")
    return _nearest(record, table, where, "int64")


def birch(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``Birch``: the label of the nearest subcluster."""
    labels = record.array("subcluster_labels_", "i", 1)
    nearest = _nearest(record, table, where, "int64", "subcluster_centers_").outputs["response"]
    if len(labels) != len(finite(record, "subcluster_centers_", where, None, len(table))):
        raise where.damaged("its labels do not fit its subclusters.")
    response = Take(nearest, labels.astype(np.float64)[:, None])
    return Predictor("clusterer", {"response": response}, label_dtype=labels.dtype.name)


def _nearest(
    record: Record, table: Table, where: Where, dtype: str, name: str = "cluster_centers_"
) -> Predictor:
    centres = finite(record, name, where, None, len(table))
    rows = TableRows(table)
    # Without the row's square, which changes no comparison, as in the library.
    squares = (centres * centres).sum(axis=1)
    away = apply("add", Contract(rows, -2.0 * centres.T.copy()).checked(), squares)
    return Predictor("clusterer", {"response": reduce("argmin", away)}, label_dtype=dtype)


def bisecting(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``BisectingKMeans``: at each fork the nearer of two centres, down to a cluster."""
    shift = np.zeros(len(table))
    if "_X_mean" in record:
        shift = floats(record, "_X_mean", where, len(table))
    forks = _forks(record.record("_bisecting_tree"), shift, where)
    return Predictor("clusterer", {"response": label_behind(TableRows(table), *forks)}, label_dtype="int32")


def label_behind(
    rows: Node, differences: np.ndarray, offsets: np.ndarray, ways: np.ndarray, labels: np.ndarray
) -> Node:
    """Return the label of the cluster at which a row arrives in a tree of I forks and I + 1 clusters.

    `differences`, `offsets`: factors and offsets of the comparison at each fork, float64, shapes (I, F) and
    (I,): rows go left where it is at most 0.
    `ways`: for each cluster and fork, 1 if the cluster is on its left, -1 on its right, else 0, float64,
    shape (I + 1, I).
    `labels`: float64, shape (I + 1,).
    """
    if not len(differences):
        return constant(labels[0])
    # Squared distance to the left centre minus that to the right centre; the row's square cancels.
    further = apply("add", Contract(rows, differences.T.copy()).checked(), offsets)
    left = apply("less_equal", further, 0.0)
    # The forks above a cluster that lead to it, minus all forks above it: 0 for the row's cluster alone.
    lefts = (ways > 0).sum(axis=1)
    score = apply("subtract", Contract(left, ways.T.copy()), lefts.astype(np.float64))
    return Take(reduce("argmax", score), labels[:, None])


def _forks(tree: Record, shift: np.ndarray, where: Where) -> tuple[np.ndarray, ...]:
    """Read a tree of bisections; see `label_behind` for what it returns."""
    factors: list[np.ndarray] = []
    offsets: list[float] = []
    leaves: list[tuple[float, list[tuple[int, float]]]] = []
    stack: list[tuple[Record, list[tuple[int, float]]]] = [(tree, [])]
    seen: set[int] = set()
    while stack:
        node, path = stack.pop()
        if id(node) in seen:
            raise where.damaged("its tree of clusters has a loop.")
        seen.add(id(node))
        if node.get("left", None) is None:
            leaves.append((float(node.whole("label")), path))
            continue
        if len(factors) >= MOST_CLUSTERS:
            raise where.unsupported(f"has more than {MOST_CLUSTERS:,} clusters, which is not supported.")
        left, right = (
            floats_of(node.record(side).get("center"), "center", where, len(shift)) + shift
            for side in ("left", "right")
        )
        number = len(factors)
        factors.append(2.0 * (right - left))
        offsets.append(float(left @ left - right @ right))
        stack += [
            (node.record("right"), [*path, (number, -1.0)]),
            (node.record("left"), [*path, (number, 1.0)]),
        ]
    labels, ways = ways_of(leaves, len(factors))
    return np.array(factors).reshape(-1, len(shift)), np.array(offsets), ways, labels


def ways_of(leaves: list[tuple[float, list[tuple[int, float]]]], forks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and ways of clusters, see `label_behind`, from each cluster's label and path."""
    ways = np.zeros((len(leaves), forks))
    for i, (_, path) in enumerate(leaves):
        for number, side in path:
            ways[i, number] = side
    return np.array([label for label, _ in leaves]), ways


def nearest_centroid(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``NearestCentroid``: the nearest class, or (with priors) the largest discriminant."""
    labels = classes_of(record)
    centres = floats(record, "centroids_", where, len(labels), len(table))
    euclidean = choice(record, "metric", where, ("euclidean", "manhattan")) == "euclidean"
    rows = TableRows(table)
    metric = "squared_euclidean" if euclidean else "manhattan"
    nearest = reduce("argmin", Distance(rows, centres, metric).checked())  # type: ignore[arg-type]
    # Before scikit-learn 1.6 there were neither priors nor scores.
    if "class_prior_" not in record:
        return Predictor("classifier", {"index": nearest}, (labels,))
    priors = floats(record, "class_prior_", where, len(labels))
    deviation = floats(record, "within_class_std_dev_", where, len(table))
    scale = np.broadcast_to(1.0 / np.where(deviation != 0, deviation, 1.0), centres.shape)
    away: Node = Distance(rows, centres, metric, scale.copy()).checked()  # type: ignore[arg-type]
    away = away if euclidean else apply("square", away)
    with np.errstate(divide="ignore"):
        scores = apply("subtract", 2.0 * np.log(priors), away)
    alike = bool(np.isclose(priors, 1 / len(labels)).all())
    outputs: dict[str, Node] = {"index": nearest if alike else reduce("argmax", scores)}
    if euclidean:
        outputs["proba"] = softmax(scores)
        second, first = (select(scores, [i]) for i in ((1, 0) if len(labels) > 1 else (0, 0)))
        outputs["decision"] = apply("subtract", second, first) if len(labels) == 2 else scores
    return Predictor("classifier", outputs, (labels,))
