"""`Stage`: a kernel that runs before the last one, and makes columns for those behind it.

All kernels of a model read columns of one matrix: first the feeds, then what each stage makes, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hbtvm.graph.networks.network import Network
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import Scaled


@dataclass(frozen=True, eq=False)
class Stage:
    """One kernel's work."""

    anchor: TreeEnsemble | Network  # what it computes: plain sums, with a base score of 0 and a divisor of 1
    columns: tuple[int, ...]  # which columns of the matrix are the columns that the anchor reads
    # `single`, `scaled`: as in `hbtvm.graph.graph.Graph`
    single: TreeEnsemble | Network | None = None
    scaled: Scaled | None = None
