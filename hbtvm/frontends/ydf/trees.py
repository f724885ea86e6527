"""YDF's trees: nodes in depth-first order, the negative child first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import Tree
from hbtvm.frontends.ydf.columns import Feature, Kind
from hbtvm.frontends.ydf.wire import Message
from hbtvm.graph.trees.ensemble import LEAF, CategorySet
from hbtvm.words.printable import shown

_MISSING, _HIGHER, _TRUE, _CONTAINS, _BITMAP, _BIN, _OBLIQUE = range(1, 8)
"""Fields of a ``Condition``: its types."""

_REFUSED = {_OBLIQUE: "oblique splits (split_axis='SPARSE_OBLIQUE')", 8: "splits on sequences of vectors"}

_TRUTH = float(np.nextafter(np.float32(0.5), np.float32(0)))
"""Bools go right above this number."""


_MOST_MEMBERS = 1 << 27
"""Bound of the members of all sets of categories, as a set may take a few bytes of a file."""


class Forest:
    """Reads a model's trees one after the other."""

    def __init__(
        self,
        nodes: Sequence[bytes],
        features: Mapping[int, tuple[int, Feature]],
        leaf: Callable[[Message], np.ndarray],
    ) -> None:
        """Prepare to read `nodes`.

        `features`: by YDF's number of a column, the trees' column and what is known of it.
        `leaf`: returns a leaf's values, float64, shape (V,).
        """
        self._nodes, self._features, self._leaf = nodes, features, leaf
        self._at, self._room = 0, _MOST_MEMBERS
        self._sets: dict[tuple[int, bytes, bool], CategorySet] = {}

    def trees(self, count: int) -> list[Tree]:
        """Return all trees. Raises `ModelError` unless the nodes are those of `count` trees."""
        if not 0 <= count <= len(self._nodes):
            raise ModelError(f"the YDF model is damaged: {len(self._nodes)} nodes are not {count} trees.")
        trees = [self._tree() for _ in range(count)]
        if self._at < len(self._nodes):
            raise ModelError("the YDF model is damaged: it has nodes behind its last tree.")
        return trees

    def _tree(self) -> Tree:
        first = self._at
        feature, threshold, default_left = [], [], []
        left, right = [], []
        value: list[np.ndarray | None] = []
        categories = {}
        open_splits: list[tuple[int, float]] = []  # whose right child is not read yet, and this child's cover
        cover: list[float] = []
        expected = 0.0  # a tree of a single leaf has no numbers of rows
        while True:
            if self._at >= len(self._nodes):
                raise ModelError("the YDF model is damaged: its last tree is cut off.")
            node, number = Message(self._nodes[self._at]), self._at - first
            self._at += 1
            if 3 in node:
                split = node.message(3)
                column, cut, missing_left, members = self._split(split)
                feature.append(column)
                threshold.append(cut)
                default_left.append(missing_left)
                left.append(number + 1)
                right.append(LEAF)
                value.append(None)
                if members is not None:
                    categories[number] = members
                total, right_rows = _rows(split)
                cover.append(total)
                expected = total - right_rows
                open_splits.append((number, right_rows))
                continue
            feature.append(0)
            threshold.append(0.0)
            default_left.append(False)
            left.append(LEAF)
            right.append(LEAF)
            value.append(self._leaf(node))
            cover.append(expected)
            if not open_splits:
                break
            parent, expected = open_splits.pop()
            right[parent] = number + 1
        width = len(next(v for v in value if v is not None))
        return Tree(
            feature=np.array(feature),
            threshold=np.array(threshold),
            left=np.array(left),
            right=np.array(right),
            default_left=np.array(default_left),
            value=np.array([np.zeros(width) if v is None else v for v in value]),
            categories=categories,
            cover=np.array(cover),
            leaf_id=np.cumsum(np.array(left) == LEAF) - 1,
        )

    def _split(self, split: Message) -> tuple[int, float, bool, CategorySet | None]:
        """Return a split's column, threshold, whether missing values go left, and categories that do."""
        number = split.whole(2)
        if number not in self._features:
            raise ModelError(f"the YDF model is damaged: a split reads column {number}, which is no feature.")
        column, feature = self._features[number]
        condition, positive = split.message(3), bool(split.whole(1))
        kinds = condition.numbered(1)
        kind = kinds[0] if len(kinds) == 1 else 0
        if kind in _REFUSED:
            raise UnsupportedModel(
                f"the YDF model has {_REFUSED[kind]}, which are not supported; train it with "
                "axis-aligned splits."
            )
        if feature.categorical and kind in (_MISSING, _CONTAINS, _BITMAP):
            return column, 0.0, False, self._members(number, feature, condition, kind, positive)
        if kind == _MISSING:
            # All numbers are at most infinite, so only missing values go right.
            return column, np.inf, False, None
        if kind == _TRUE and feature.kind == Kind.BOOLEAN:
            return column, _TRUTH, not positive, None
        if kind == _HIGHER and feature.kind == Kind.NUMERICAL:
            return column, _below(condition.message(_HIGHER).single(1)), not positive, None
        if kind == _BIN and feature.kind == Kind.DISCRETIZED_NUMERICAL:
            bin_ = condition.message(_BIN).whole(1)
            if not 1 <= bin_ <= len(feature.boundaries):
                raise ModelError("the YDF model is damaged: a split asks for an unknown bin.")
            return column, _below(float(feature.boundaries[bin_ - 1])), not positive, None
        raise ModelError(
            f"the YDF model is damaged: a condition of type {kind} on the column '{shown(feature.name, 60)}'."
        )

    def _members(
        self, number: int, feature: Feature, condition: Message, kind: int, positive: bool
    ) -> CategorySet:
        """Return the codes that go left: those of categories outside a condition's set."""
        content = condition.content(kind)
        key = (number, bytes([kind]) + content, positive)
        if key not in self._sets:
            chosen = np.zeros(max(feature.size, 1), bool)
            if kind == _BITMAP:
                bitmap = np.frombuffer(condition.message(kind).content(1), np.uint8)
                bits = np.unpackbits(bitmap, bitorder="little")[: len(chosen)].astype(bool)
                chosen[: len(bits)] = bits
            elif kind == _CONTAINS:
                elements = condition.message(kind).integers(1)
                if any(element >= len(chosen) for element in elements):
                    raise ModelError("the YDF model is damaged: a split asks for an unknown category.")
                chosen[elements] = True
            known = chosen[list(feature.numbers)]
            # Unknown values have the number 0; a condition on missing values holds for them alone.
            missing = np.full(len(feature.missing), kind == _MISSING or positive)
            right = np.concatenate([known, missing, chosen[:1]])
            self._room -= len(chosen)
            if self._room < 0:
                raise UnsupportedModel("the YDF model has too many sets of categories.")
            self._sets[key] = CategorySet(~right)
        return self._sets[key]


def _rows(split: Message) -> tuple[float, float]:
    """Return the weights of the training rows of a split and of its positive child; NaN if unknown."""
    try:
        total, positive = (split.numbers(number, "<f8") for number in (5, 8))
    except ModelError:
        return np.nan, np.nan
    known = len(total) and len(positive)
    return (float(total[-1]), float(positive[-1])) if known else (np.nan, np.nan)


def _below(threshold: float) -> float:
    """Return the largest float32 number below a threshold, from which on values go right."""
    with np.errstate(over="ignore"):
        return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
