"""Strategies: the ways a forest can be expressed as tensor expressions."""

from hbtvm.strategies.base import Strategy, Workload, workload_of
from hbtvm.strategies.bitvector import Bitvector
from hbtvm.strategies.forest import Forest, make_forest
from hbtvm.strategies.gemm import Gemm
from hbtvm.strategies.perfect import PerfectTreeTraversal
from hbtvm.strategies.ranked import RankedTraversal
from hbtvm.strategies.traversal import TreeTraversal

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (Bitvector(), RankedTraversal(), PerfectTreeTraversal(), TreeTraversal(), Gemm())
}
"""Every strategy by name. `TreeTraversal` holds any forest, so a model always has one."""

__all__ = ["STRATEGIES", "Forest", "Strategy", "Workload", "make_forest", "workload_of"]
