"""Hummingbird's three algorithms in PyTorch operations, written from the paper (OSDI'20).

For models without categories, and rows without missing values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.strategies import Forest
from hbtvm.strategies.trees.perfect import perfect_levels

_CHUNK = 1 << 28
"""Values of the largest intermediate array: rows go through in pieces of that size."""


def padded(forest: Forest) -> dict[str, np.ndarray]:
    """Nodes of all trees in arrays of shape (T, M): column, threshold, left, right; values (T, M, V).

    A leaf's children are the leaf itself, so that walks may go on.
    """
    sizes = np.diff(forest.offset)
    shape = len(sizes), int(sizes.max())
    inside = np.arange(shape[1]) < sizes[:, None]
    here = np.broadcast_to(np.arange(shape[1]), shape)
    result = {"column": np.zeros(shape, np.int64), "threshold": np.zeros(shape, np.float32)}
    result |= {"left": here.copy(), "right": here.copy()}
    leaf = forest.left < 0
    own = here[inside]
    result["column"][inside] = np.where(leaf, 0, forest.column)
    result["threshold"][inside] = np.where(leaf, 0, forest.threshold)
    result["left"][inside] = np.where(leaf, own, forest.left)
    result["right"][inside] = np.where(leaf, own, forest.right)
    result["value"] = np.zeros((*shape, forest.value.shape[1]), np.float32)
    result["value"][inside] = forest.value
    return result


class TorchForest:
    """A forest on a device.

    Parameters
    ----------
    forest
        Without categories.
    device
        As torch names it.
    """

    def __init__(self, forest: Forest, device: str = "cuda") -> None:
        import torch

        self._torch, self._depth = torch, max(forest.depth, 1)
        put = lambda array: torch.from_numpy(np.ascontiguousarray(array)).to(device)  # noqa: E731
        self._columns = put(forest.column_feature.astype(np.int64))
        nodes = padded(forest)
        self._nodes = {name: put(table) for name, table in nodes.items()}
        groups, width = len(forest.group_trees), forest.value.shape[1]
        member = np.zeros((len(nodes["column"]), groups), np.float32)
        for group, trees in enumerate(forest.group_trees):
            member[trees[trees >= 0], group] = 1
        self._member, self._outputs = put(member), groups * width
        self._gemm = {name: put(table) for name, table in _paths(nodes).items()}
        self._levels = None
        if forest.depth <= 10:
            levels = perfect_levels(forest)
            above = np.concatenate([levels[0], *levels[:-1]], axis=1)
            split = forest.left[above] >= 0
            tables = (np.where(split, forest.column[above], 0).astype(np.int64),)
            tables += (np.where(split, forest.threshold[above], 0).astype(np.float32),)
            self._levels = tuple(map(put, (*tables, forest.value[levels[-1]].astype(np.float32))))

    @property
    def algorithms(self) -> dict[str, Callable[[Any], Any]]:
        """By name: from rows on the device, (n, F), to sums of leaf values, (n, outputs)."""
        found = {"torch GEMM": self.gemm, "torch TT": self.traverse}
        return found | ({"torch PTT": self.traverse_perfect} if self._levels is not None else {})

    def traverse(self, X: Any) -> Any:
        """Tree traversal: from node to child by gathers, all trees and rows at once."""
        nodes, torch = self._nodes, self._torch
        trees = torch.arange(len(nodes["column"]), device=X.device)

        def walk(x: Any) -> Any:
            at = torch.zeros((len(x), len(trees)), dtype=torch.int64, device=x.device)
            for _ in range(self._depth):
                left = torch.gather(x, 1, nodes["column"][trees, at]) <= nodes["threshold"][trees, at]
                at = torch.where(left, nodes["left"][trees, at], nodes["right"][trees, at])
            return nodes["value"][trees, at]

        return self._sums(X, walk, len(trees))

    def traverse_perfect(self, X: Any) -> Any:
        """Perfect tree traversal: children are computed, not looked up."""
        assert self._levels is not None
        torch, (column, threshold, value) = self._torch, self._levels
        trees, depth = torch.arange(len(column), device=X.device), column.shape[1].bit_length() - 1

        def walk(x: Any) -> Any:
            at = torch.ones((len(x), len(trees)), dtype=torch.int64, device=x.device)
            for _ in range(depth):
                left = torch.gather(x, 1, column[trees, at]) <= threshold[trees, at]
                at = 2 * at + (~left).to(torch.int64)
            return value[trees, at - value.shape[1]]

        return self._sums(X, walk, len(trees))

    def gemm(self, X: Any) -> Any:
        """GEMM: all tests, times who lies left and right of them, compared with what leaves expect."""
        torch, gemm = self._torch, self._gemm
        trees, tests = gemm["column"].shape

        def walk(x: Any) -> Any:
            left = x[:, gemm["column"].reshape(-1)].reshape(len(x), trees, tests) <= gemm["threshold"]
            counts = torch.bmm(left.to(torch.float16).transpose(0, 1), gemm["path"])
            leaf = (counts == gemm["left_counts"][:, None]).to(torch.float32)
            return torch.bmm(leaf, gemm["value"]).transpose(0, 1)

        return self._sums(X, walk, trees * max(tests, gemm["path"].shape[2]))

    def _sums(self, X: Any, walk: Callable[[Any], Any], values: int) -> Any:
        """Sums over each group's trees of what `walk` gives, (n, T, V), piece by piece."""
        size, parts = max(1, _CHUNK // values), []
        for start in range(0, len(X), size):
            x = X[start : start + size].index_select(1, self._columns)
            reached = walk(x).to(self._torch.float32)
            parts.append(self._torch.einsum("ntv,tg->ngv", reached, self._member).reshape(-1, self._outputs))
        return self._torch.cat(parts)


def _paths(nodes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tests (T, I), paths (T, I, L) with 1 and -1 for left and right, leaves' counts and values."""
    trees, most = nodes["column"].shape
    split = nodes["left"] != np.arange(most)
    tests = max(int(split.sum(1).max()), 1)
    leaves = most - int(split.sum(1).min())
    made = {
        "column": np.zeros((trees, tests), np.int64),
        "threshold": np.zeros((trees, tests), np.float32),
        "path": np.zeros((trees, tests, leaves), np.float16),
        "left_counts": np.full((trees, leaves), -1e4, np.float16),
        "value": np.zeros((trees, leaves, nodes["value"].shape[2]), np.float32),
    }
    for tree in range(trees):
        number = np.cumsum(split[tree]) - 1
        used = np.flatnonzero(split[tree])
        for name in ("column", "threshold"):
            made[name][tree, : len(used)] = nodes[name][tree, used]
        count, waiting = 0, [(0, [])]
        while waiting:
            node, way = waiting.pop()
            if split[tree, node]:
                here = number[node]
                waiting.append((int(nodes["left"][tree, node]), [*way, (here, 1)]))
                waiting.append((int(nodes["right"][tree, node]), [*way, (here, -1)]))
                continue
            for test, sign in way:
                made["path"][tree, test, count] = sign
            made["left_counts"][tree, count] = sum(sign > 0 for _, sign in way)
            made["value"][tree, count] = nodes["value"][tree, node]
            count += 1
    return made
