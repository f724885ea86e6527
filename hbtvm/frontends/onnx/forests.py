"""Trees of ai.onnx.ml's operators as a `TreeEnsemble`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.onnx.call import Call
from hbtvm.graph.trees.ensemble import LEAF, CompareDtype, TreeEnsemble

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""By the numbers of version 5."""

_, _LT, _GTE, _GT, EQ, _NEQ, MEMBER = range(7)

_MOST_OUTPUTS = 1 << 16
_MOST_VALUES = 1 << 26  # bound of the numbers of all leaves

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(eq=False)
class Forest:
    """Trees in ONNX's form; N nodes, W weights."""

    starts: np.ndarray  # int64, shape (T + 1,): the first node of each tree, its root
    # `feature`, `mode`: int64, shape (N,); the mode of leaves is -1
    feature: np.ndarray
    mode: np.ndarray
    value: np.ndarray  # float64, shape (N,): the splits' thresholds
    # `yes`, `no`: int64, shape (N,): children, counted from the tree's first node
    yes: np.ndarray
    no: np.ndarray
    tracks: np.ndarray  # bool, shape (N,): whether NaN is true
    # `holders`, `targets`, `weights`: shape (W,): leaves (indices in the forest), outputs, and terms of these
    holders: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    outputs: int  # number of outputs
    base: np.ndarray  # float64: base values, maybe empty
    aggregate: str = "SUM"  # one of `AGGREGATES`
    double: bool = False  # whether the numbers are float64
    members: dict[int, tuple[float, ...]] = field(default_factory=dict)  # by node, the values of a set
    # `number`, `rate`: shape (N,): the file's number of each leaf, and the nodes' hit rates; None if unknown
    number: np.ndarray | None = None
    rate: np.ndarray | None = None
    # Features with sets of values that splits test: columns behind the others
    sets: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)


def assembled(call: Call, forest: Forest, width: int, compare: CompareDtype) -> TreeEnsemble:
    """Return the trees as an ensemble, with the columns of `Forest.sets` behind `width` columns.

    Raises `ModelError` if they are not trees. Raises `UnsupportedModel` if they are too large.
    """
    if not 1 <= forest.outputs <= _MOST_OUTPUTS:
        raise call.damaged(f"it has {forest.outputs:,} outputs.")
    if len(forest.targets) and not 0 <= forest.targets.min() <= forest.targets.max() < forest.outputs:
        raise call.damaged(f"a leaf adds to an output beyond {forest.outputs}.")
    if forest.aggregate not in AGGREGATES:
        raise call.damaged(f"its aggregate_function is {forest.aggregate[:20]!r}.")
    feature, threshold, left, right, default_left = _splits(call, forest, width, compare)
    trees, first = _leaves(call, forest, feature, threshold, left, right, default_left)
    count = len(trees)
    used = len(forest.base) == forest.outputs
    return assemble(
        trees,
        n_features=width + len(forest.sets),
        compare_dtype=compare,
        tree_output=first,
        base_score=forest.base if used else np.zeros(forest.outputs),
        divisor=float(count) if forest.aggregate == "AVERAGE" else 1.0,
    )


def _splits(
    call: Call, forest: Forest, width: int, compare: CompareDtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return comparisons as ``<=``: feature, threshold, left, right, default direction."""
    _merge_sets(forest)
    mode, feature, value = forest.mode, forest.feature.copy(), forest.value.copy()
    split = mode != LEAF
    if np.any(split & ((feature < 0) | (feature >= width))):
        raise call.damaged(f"it reads a column beyond {width}.")
    if compare == "float32":
        with np.errstate(over="ignore"):
            value = value.astype(np.float32).astype(np.float64)
        below = np.nextafter(value.astype(np.float32), np.float32(-np.inf)).astype(np.float64)
    else:
        below = np.nextafter(value, -np.inf)
    threshold = np.where((mode == _LT) | (mode == _GTE), below, value)
    # The negation of a comparison: exchange the children.
    turned = np.isin(mode, (_GTE, _GT, EQ, MEMBER))
    left = np.where(turned, forest.no, forest.yes)
    right = np.where(turned, forest.yes, forest.no)
    # NaN is true only if a node says so, and is unequal to everything.
    true = forest.tracks | (mode == _NEQ)
    default_left = split & (true ^ turned)
    known: dict[tuple[int, tuple[float, ...]], int] = {}
    for i in np.flatnonzero(np.isin(mode, (EQ, _NEQ, MEMBER))).tolist():
        values = forest.members.get(i, (float(value[i]),))
        if compare == "float32":
            values = tuple(np.array(values, np.float32).astype(np.float64).tolist())
        key = (int(feature[i]), tuple(sorted(set(values))))
        if key not in known:
            known[key] = width + len(forest.sets)
            forest.sets.append(key)
        feature[i], threshold[i] = known[key], 0.5
    return feature, threshold, np.where(split, left, LEAF), np.where(split, right, LEAF), default_left


def _merge_sets(forest: Forest) -> None:
    """Merge chains of equality tests of a column into a split by a set of values.

    Converters write sets of categories so. All tests of a chain share a child, which an ensemble can't.
    """
    equal = np.flatnonzero(forest.mode == EQ).tolist()
    if not equal:
        return
    base = np.repeat(forest.starts[:-1], np.diff(forest.starts))
    split = forest.mode != LEAF
    parents = np.bincount(np.concatenate([(base + forest.yes)[split], (base + forest.no)[split]]))
    merged: set[int] = set()
    for i in equal:
        values = [float(forest.value[i])]
        while i not in merged:
            j = int(base[i] + forest.no[i])
            same = forest.mode[j] == EQ and forest.feature[j] == forest.feature[i]
            if not same or forest.yes[j] != forest.yes[i] or forest.tracks[j] != forest.tracks[i]:
                break
            if j == i or j in merged or parents[j] > 1:
                break
            values += forest.members.get(j, (float(forest.value[j]),))
            forest.no[i] = forest.no[j]
            merged.add(j)
        if len(values) > 1:
            forest.members[i] = tuple(values)


def _leaves(
    call: Call,
    forest: Forest,
    feature: np.ndarray,
    threshold: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    default_left: np.ndarray,
) -> tuple[list[Tree], np.ndarray]:
    """Return the trees, and the first output that each adds to."""
    count = len(forest.starts) - 1
    tree = np.repeat(np.arange(count), np.diff(forest.starts))[forest.holders]
    low, high = np.full(count, forest.outputs), np.full(count, -1)
    np.minimum.at(low, tree, forest.targets)
    np.maximum.at(high, tree, forest.targets)
    single = bool(np.all(high <= low))
    width = 1 if single else forest.outputs
    if len(feature) * width > _MOST_VALUES:
        raise call.unsupported(f"has {len(feature):,} nodes of {width:,} outputs, which is not supported.")
    first = np.where(high < 0, 0, low) if single else np.zeros(count, np.int64)
    value = np.zeros((len(feature), width))
    holders, targets, weights = forest.holders, forest.targets, forest.weights
    if forest.outputs == 1:
        # With a single output, ONNX Runtime takes the first of a leaf's weights.
        holders, once = np.unique(holders, return_index=True)
        tree, targets, weights = tree[once], targets[once], weights[once]
    np.add.at(value, (holders, targets - first[tree]), weights)
    spans = zip(forest.starts[:-1].tolist(), forest.starts[1:].tolist(), strict=True)
    number, rate = forest.number, forest.rate
    trees = [
        Tree(
            feature[a:b],
            threshold[a:b],
            left[a:b],
            right[a:b],
            default_left[a:b],
            value[a:b],
            cover=None if rate is None else rate[a:b],
            leaf_id=None if number is None else number[a:b],
        )
        for a, b in spans
    ]
    return trees, first
