"""`Stage`: a kernel that runs before the last one, and computes columns for the kernels behind it.

All kernels of a model read columns of one matrix: first the feeds, then each stage's scores, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hbtvm.graph.networks.network import Network
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import Scaled


@dataclass(frozen=True, eq=False)
class Stage:
    """A kernel's work."""

    anchor: TreeEnsemble | Network  # plain sums: base score 0, divisor 1
    columns: tuple[int, ...]  # the columns of the matrix that the anchor reads
    # `single`, `scaled`: as in `hbtvm.graph.graph.Graph`
    single: TreeEnsemble | Network | None = None
    scaled: Scaled | None = None
