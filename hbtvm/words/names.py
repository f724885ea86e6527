"""Names that users type, available without importing the compiler."""

from __future__ import annotations

from collections.abc import Mapping

STRATEGIES = (
    "bitvector", "ranked_traversal", "perfect_tree_traversal", "tree_traversal", "gemm", "oblivious",
    "leaf_intervals",
)  # fmt: skip
"""The strategies of `hbtvm.strategies.STRATEGIES`, in their order."""

BY_FAMILY: Mapping[str, tuple[str, ...]] = {
    "trees": STRATEGIES,
    "linear": ("linear",),
    "contract": ("fused", "product"),
    "distance": ("fused",),
    "select": ("fused",),
    "pointwise": ("fused",),
    "recursive": ("levels",),
    "reasons": ("quadrature",),
}
"""Strategies by operand family (`hbtvm.strategies.base.Operand.family`)."""

REASONS_TITLE = "reasons, "
"""Beginning of the names of tasks and groups for kernels that compute contributions of columns."""

ALL_STRATEGIES = tuple(dict.fromkeys(name for names in BY_FAMILY.values() for name in names))  # all of them

MODEL_ENDINGS = (
    ".pkl", ".pickle", ".joblib", ".json", ".ubj", ".txt", ".onnx", ".rec", ".pt2", ".skops", ".cbm",
)  # fmt: skip
"""Usual suffixes of files of trained models."""

CONTAINERS = {
    "array": "call, array",
    "frame": "call, frame",
    "dict": "call, dict",
    "structures": "call",
}
"""Containers of rows and, for each, the heading of the time of a call."""
