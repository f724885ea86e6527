"""Terms of additive models as trees: a tree for each term, whose leaves are the cells of its table.

Neighbouring bins with equal scores share a leaf, so the trees are smaller than the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hbtvm.frontends.build import Tree
from hbtvm.graph.trees.ensemble import LEAF


@dataclass(frozen=True)
class Axis:
    """A column of a term: its bins are the axis of the term's table.

    `column`: the column's index in the rows.
    `cuts`: float64, ascending: bin 0 is for missing values, bin i for values from ``cuts[i - 2]`` to below
        ``cuts[i - 1]``. None if the column's values are the bins themselves.
    """

    column: int
    cuts: np.ndarray | None


def term_tree(scores: np.ndarray, axes: Sequence[Axis]) -> Tree:
    """Return the tree of a term.

    `scores`: float64, with an axis for each of `axes` and a last axis for the outputs.
    """
    nodes = _Nodes()
    nodes.cell(scores, tuple(axes))
    left = np.array(nodes.left)
    return Tree(
        feature=np.array(nodes.feature),
        threshold=np.array(nodes.threshold),
        left=left,
        right=np.array(nodes.right),
        default_left=np.array(nodes.default_left),
        value=np.array([np.zeros(scores.shape[-1]) if value is None else value for value in nodes.value]),
    )


@dataclass
class _Nodes:
    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    default_left: list[bool] = field(default_factory=list)
    value: list[np.ndarray | None] = field(default_factory=list)

    def cell(self, scores: np.ndarray, axes: tuple[Axis, ...]) -> int:
        """Add the nodes of a part of the table; return the first."""
        if not axes:
            node = self._node(LEAF, 0.0, False)
            self.value[node] = scores
            return node
        axis, *rest = axes
        if axis.cuts is None:
            bins = scores
            bounds = np.arange(len(bins) - 1) + 0.5
        else:
            bins = scores[1 : len(axis.cuts) + 2]
            # The bin starts at its cut.
            bounds = np.nextafter(axis.cuts, -np.inf)
        flat = bins.reshape(len(bins), -1)
        starts = np.flatnonzero(np.append(True, np.any(flat[1:] != flat[:-1], axis=1)))
        runs = [bins[start] for start in starts]
        ends = bounds[starts[1:] - 1].tolist()
        if axis.cuts is None:
            return self._runs(axis, tuple(rest), runs, ends, False)
        missing = scores[0]
        if np.array_equal(missing, runs[0]) or np.array_equal(missing, runs[-1]):
            return self._runs(axis, tuple(rest), runs, ends, np.array_equal(missing, runs[0]))
        # All numbers go left, and missing values right.
        node = self._node(axis.column, np.inf, False)
        self.left[node] = self._runs(axis, tuple(rest), runs, ends, False)
        self.right[node] = self.cell(missing, tuple(rest))
        return node

    def _runs(
        self,
        axis: Axis,
        rest: tuple[Axis, ...],
        runs: Sequence[np.ndarray],
        ends: Sequence[float],
        missing_left: bool,
    ) -> int:
        """Add the nodes that choose among runs of bins; `ends` has the last number of all but the last."""
        if len(runs) == 1:
            return self.cell(runs[0], rest)
        half = len(runs) // 2
        node = self._node(axis.column, ends[half - 1], missing_left)
        self.left[node] = self._runs(axis, rest, runs[:half], ends[: half - 1], missing_left)
        self.right[node] = self._runs(axis, rest, runs[half:], ends[half:], missing_left)
        return node

    def _node(self, feature: int, threshold: float, default_left: bool) -> int:
        self.feature.append(feature)
        self.threshold.append(threshold)
        self.left.append(LEAF)
        self.right.append(LEAF)
        self.default_left.append(default_left)
        self.value.append(None)
        return len(self.feature) - 1
