"""`Structures`: a batch of a recursive model's inputs, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Structures:
    """A batch of sequences, trees or directed acyclic graphs.

    Attributes
    ----------
    starts
        int64, shape (B + 1,): structure b has the nodes ``starts[b]`` to ``starts[b + 1] - 1``.
    first
        int32, shape (N + 1,): the children of node v are ``child[first[v]:first[v + 1]]``, in order of place.
    child
        int32, shape (E,): nodes' indices in the whole batch; -1 for an empty place.
    inputs
        By name: int32, shape (N,), for numbers; float32, shape (N, size), for vectors.

    Nodes may come in any order; children first is fast.
    """

    starts: np.ndarray
    first: np.ndarray
    child: np.ndarray
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without models' caches."""
        return {field.name: self.__dict__[field.name] for field in fields(self)}
