"""Strategies: ways to express a forest, a linear model or a network as tensor expressions."""

from collections.abc import Mapping
from typing import Any

from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Operand, Strategy, workload_of
from hbtvm.strategies.cuda import (
    CudaBitvector,
    CudaFused,
    CudaGemm,
    CudaLinearSum,
    CudaOblivious,
    CudaPerfectTreeTraversal,
    CudaQuadrature,
    CudaRankedTraversal,
    CudaTreeTraversal,
)
from hbtvm.strategies.linear import LinearSum
from hbtvm.strategies.linear_operand import LinearOperand, make_linear
from hbtvm.strategies.network.operand import FAMILIES, NetworkOperand, make_network
from hbtvm.strategies.network.product import Product
from hbtvm.strategies.network.strategy import Fused
from hbtvm.strategies.reasons.operand import ReasonsOperand, make_reasons
from hbtvm.strategies.reasons.strategy import Quadrature
from hbtvm.strategies.trees.bitvector import Bitvector
from hbtvm.strategies.trees.forest import Forest, make_forest
from hbtvm.strategies.trees.gemm import Gemm
from hbtvm.strategies.trees.intervals import LeafIntervals
from hbtvm.strategies.trees.oblivious import Oblivious
from hbtvm.strategies.trees.perfect import PerfectTreeTraversal
from hbtvm.strategies.trees.ranked import RankedTraversal
from hbtvm.strategies.trees.traversal import TreeTraversal
from hbtvm.words.names import STRATEGIES as NAMES

_CPU = (
    Bitvector(),
    Oblivious(),
    RankedTraversal(),
    PerfectTreeTraversal(),
    TreeTraversal(),
    Gemm(),
    LeafIntervals(),
)

STRATEGIES: dict[str, Strategy] = {
    name: next(strategy for strategy in _CPU if strategy.name == name) for name in NAMES
}
"""Strategies for trees on all CPUs, by name. `TreeTraversal` supports every forest."""

_ON_GPUS = (
    CudaBitvector(),
    CudaOblivious(),
    CudaRankedTraversal(),
    CudaPerfectTreeTraversal(),
    CudaTreeTraversal(),
)

_BY_KIND: dict[tuple[str, str], dict[str, Strategy]] = {
    ("llvm", "trees"): STRATEGIES,
    ("llvm", "linear"): {"linear": LinearSum()},
    ("llvm", "reasons"): {"quadrature": Quadrature()},
    **{("llvm", family): {"fused": Fused()} for family in FAMILIES},
    ("llvm", "contract"): {"fused": Fused(), "product": Product()},
    # Those that need no more than OpenCL 1.2: tensor cores are CUDA's.
    ("opencl", "trees"): {strategy.name: strategy for strategy in _ON_GPUS},
    ("cuda", "trees"): {strategy.name: strategy for strategy in (*_ON_GPUS, CudaGemm())},
    ("cuda", "reasons"): {"quadrature": CudaQuadrature()},
    **{(kind, "linear"): {"linear": CudaLinearSum()} for kind in ("cuda", "opencl")},
    **{(kind, family): {"fused": CudaFused()} for kind in ("cuda", "opencl") for family in FAMILIES},
}
"""The strategies that have kernels, by the target's ``kind`` and the operand's family."""


def strategies_on(target: Mapping[str, Any], family: str = "trees") -> dict[str, Strategy]:
    """Return the strategies that have kernels for a target's kind, by name; empty for unknown kinds."""
    return _BY_KIND.get((str(target.get("kind")), family), {})


__all__ = [
    "STRATEGIES",
    "Forest",
    "LinearOperand",
    "NetworkOperand",
    "Operand",
    "ReasonsOperand",
    "Strategy",
    "Workload",
    "make_forest",
    "make_linear",
    "make_network",
    "make_reasons",
    "strategies_on",
    "workload_of",
]
