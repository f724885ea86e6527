"""Names that users type, known without an import of the compiler."""

from __future__ import annotations

STRATEGIES = ("bitvector", "ranked_traversal", "perfect_tree_traversal", "tree_traversal", "gemm")
"""The strategies of `hbtvm.strategies.STRATEGIES`, in their order."""

LINEAR_STRATEGIES = ("linear",)
"""Those for linear models."""
