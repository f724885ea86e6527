"""`ReasonsOperand`: the Shapley values of a forest, prepared for kernels that read rows of one type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.reasons.paths import quadrature
from hbtvm.schedules.workload import ReasonsWorkload, Workload
from hbtvm.strategies.trees.forest import DType, Forest, make_forest

_PARALLEL_WORK = 1_000
"""Rows times splits from which threads may pay: a split takes over 10 ns a row."""


@dataclass(frozen=True, eq=False)
class ReasonsOperand:
    """A forest over columns, and the facts about its paths."""

    forest: Forest
    reasons: TreeReasons  # the same nodes

    family = "reasons"

    @property
    def n_features(self) -> int:
        """Width of a row."""
        return self.forest.n_features

    @property
    def dtype(self) -> DType:
        """Type of the columns."""
        return self.forest.dtype

    @property
    def row_dtype(self) -> DType:
        """Type of the rows."""
        return self.forest.row_dtype

    @property
    def value_dtype(self) -> DType:
        """Type of the numbers of a path."""
        return self.forest.value_dtype

    @property
    def missing(self) -> bool:
        """Whether rows may have missing values."""
        return self.forest.missing

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of strategies' results that no configuration changes."""
        return {}

    def workload(self, rows: int, threads: int = 1) -> Workload:
        """See `hbtvm.strategies.workload_of`; the result is a `ReasonsWorkload`."""
        forest, reasons = self.forest, self.reasons
        splits = int(np.count_nonzero(forest.left >= 0))
        trees = len(forest.offset) - 1
        groups, most_trees = forest.group_trees.shape
        workload: ReasonsWorkload = {
            **forest.workload(rows, threads),
            "family": "reasons",
            # A player's value is no tree's alone, so trees are never apart (`ApartWorkload`).
            "groups": int(groups),
            "trees": int(most_trees),
            "threads": threads if rows * splits >= _PARALLEL_WORK else 1,
            "splits": -(-splits // trees),
            "players": reasons.n_players + 1,
            "points": len(quadrature(reasons.paths.most)[0]),
        }
        return cast(Workload, {name: value for name, value in workload.items() if name != "apart"})


def make_reasons(reasons: TreeReasons, dtype: DType, value_dtype: DType) -> ReasonsOperand:
    """Return the operand of an anchor; parameters as of `hbtvm.strategies.trees.forest.make_forest`."""
    return ReasonsOperand(make_forest(reasons.ensemble, dtype, value_dtype), reasons)
