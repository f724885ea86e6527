"""The binary format of ``treelite.Model.serialize``, version 4: scalars, and arrays behind their lengths.

Values are little-endian and follow each other without padding. An array is its length (uint64) and its items.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel

_MAJOR = 4
_TYPES: dict[int, Any] = {2: np.float32, 3: np.float64}  # of thresholds and leaves, by their numbers


@dataclass(frozen=True)
class Header:
    """What a checkpoint states of all trees."""

    dtype: Any  # of thresholds and leaves
    n_features: int
    average: bool  # whether an output is the mean of its trees
    classes: np.ndarray  # int32, shape (targets,): the number of each target's classes
    leaf_shape: tuple[int, int]  # targets and classes that a leaf adds to
    # `target`, `output_class`: int32, shape (trees,): what each tree adds to; -1 for all
    target: np.ndarray
    output_class: np.ndarray
    postprocessor: str
    sigmoid_alpha: float
    ratio: float
    base_scores: np.ndarray  # float64, shape (targets * most classes,)


Nodes = dict[str, np.ndarray]
"""A tree's arrays by name, each of a value per node but for `_LISTS` and `_STATISTICS`."""

_LISTS = ("leaf_vector", "categories")

_NODES: dict[str, Any] = {
    "kind": np.int8, "left": np.int32, "right": np.int32, "feature": np.int32, "default_left": np.bool_,
    "value": None, "threshold": None, "comparison": np.int8, "right_matches": np.bool_,
    "leaf_vector": None, "leaf_begin": np.uint64, "leaf_end": np.uint64,
    "categories": np.uint32, "categories_begin": np.uint64, "categories_end": np.uint64,
}  # fmt: skip
"""Types of a tree's arrays, in order; None for the type of thresholds."""

_STATISTICS: dict[str, Any] = {
    "data_count": np.uint64, "has_data_count": np.bool_, "sum_hess": np.float64, "has_sum_hess": np.bool_,
    "gain": np.float64, "has_gain": np.bool_,
}  # fmt: skip
"""Types of the arrays behind them, which are empty if no node has such a number."""


def read(content: bytes) -> tuple[Header, list[Nodes]]:
    """Return the header and the trees of a checkpoint.

    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if it is of another version.
    """
    cursor = _Cursor(content)
    major, minor, patch = (cursor.scalar("i") for _ in range(3))
    if major != _MAJOR:
        raise UnsupportedModel(
            f"the treelite checkpoint is of version {major}.{minor}.{patch}, and version {_MAJOR} is "
            "supported; load it with treelite 4 and serialize it again."
        )
    kinds = cursor.scalar("B"), cursor.scalar("B")
    if kinds[0] not in _TYPES or kinds[0] != kinds[1]:
        raise UnsupportedModel("the treelite checkpoint has leaves of another type than thresholds.")
    dtype, count = _TYPES[kinds[0]], cursor.scalar("Q")
    n_features, _, average, targets = (cursor.scalar(kind) for kind in "iB?i")
    classes, shape = cursor.array(np.int32), cursor.array(np.int32)
    target, output_class = cursor.array(np.int32), cursor.array(np.int32)
    postprocessor = bytes(cursor.array(np.uint8)).decode("utf-8", "replace")
    alpha, ratio, base_scores = cursor.scalar("f"), cursor.scalar("f"), cursor.array(np.float64)
    cursor.array(np.uint8)  # attributes, JSON
    cursor.no_fields()
    if len(classes) != targets or len(shape) != 2 or len(target) != count or len(output_class) != count:
        raise ModelError("the treelite checkpoint is damaged: its outputs do not fit its trees.")
    header = Header(
        *(dtype, n_features, average, classes, (int(shape[0]), int(shape[1])), target, output_class),
        *(postprocessor, alpha, ratio, base_scores),
    )
    return header, [_tree(cursor, dtype) for _ in range(count)]


def _tree(cursor: _Cursor, dtype: Any) -> Nodes:
    nodes, _ = cursor.scalar("i"), cursor.scalar("?")
    arrays = {name: cursor.array(dtype if kind is None else kind) for name, kind in _NODES.items()}
    for name, array in arrays.items():
        if name not in _LISTS and len(array) != nodes:
            raise ModelError(f"the treelite checkpoint is damaged: a tree has {len(array)} of {nodes} nodes.")
    arrays |= {name: cursor.array(kind) for name, kind in _STATISTICS.items()}
    for _ in range(2):  # fields of the tree, and of nodes
        cursor.no_fields()
    return arrays


class _Cursor:
    """Reads bytes from front to back; claims beyond the end take no memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def scalar(self, kind: str) -> Any:
        """Return a value of one of `struct`'s types."""
        size = struct.calcsize(f"<{kind}")
        if self._at + size > len(self._content):
            raise ModelError("the treelite checkpoint is cut short.")
        (value,) = struct.unpack_from(f"<{kind}", self._content, self._at)
        self._at += size
        return value

    def array(self, kind: Any) -> np.ndarray:
        """Return an array of a type."""
        count, dtype = self.scalar("Q"), np.dtype(kind)
        size = count * dtype.itemsize
        if self._at + size > len(self._content):
            raise ModelError("the treelite checkpoint is cut short.")
        # Bools may be stored as any byte.
        stored = np.uint8 if dtype.kind == "b" else dtype.newbyteorder("<")
        array: np.ndarray = np.frombuffer(self._content, stored, count, self._at).astype(dtype)
        self._at += size
        return array

    def no_fields(self) -> None:
        """Skip the number of further fields, which version 4 leaves 0."""
        if self.scalar("i"):
            raise UnsupportedModel("the treelite checkpoint has fields of a newer release of treelite.")
