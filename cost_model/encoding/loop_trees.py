"""Loop trees as arrays of nodes, and the interface of scorers for a TreeGRU.

`hbtvm.cost_model.encoding.flat` lays out each statement of a program with all its loops. In a tree, a loop
that several statements share is one node. Its children are the loops within it, and the statements' bodies
are leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding.flat import CONTEXT, FLAT_NAMES, LEVELS, STATEMENTS

_PRESENT, _SHARED = CONTEXT.index("present"), CONTEXT.index("shared")

_PLACES = LEVELS * STATEMENTS  # places of a program: all statements of each level

_ROW = np.arange(_PLACES).reshape(STATEMENTS, LEVELS).T.ravel()
"""Position of each place in the table, which has all levels of each statement."""


@dataclass(frozen=True)
class LoopTrees:
    """The distinct loops of n programs; N in number, parents before children."""

    # Int64, (n + 1,): program i has the nodes ``starts[i]`` to ``starts[i + 1] - 1``
    starts: NDArray[np.int64]
    first: NDArray[np.int32]  # int32, (N + 1,): the children of node v are ``child[first[v]:first[v + 1]]``
    child: NDArray[np.int32]  # int32: numbers of nodes, counted through all programs
    # Context vectors as in `hbtvm.cost_model.encoding.flat.CONTEXT`, float32, (N, len(CONTEXT)), finite
    contexts: NDArray[np.float32]


Weights = Mapping[str, NDArray[np.float64]]
"""A TreeGRU's weights by name, for C numbers of a context, H of a state and S slots.

A loop's state h follows from its context and the sum s of its children's states; gates r, z and n are those
of `torch.nn.GRUCell`::

    x = relu(read context + read_bias)            read (H, C), read_bias (H,)
    i = input x + input_bias                      input (3 H, H), input_bias (3 H,)
    k = state s                                   state (3 H, H)
    r, z = sigmoid(i_r + k_r), sigmoid(i_z + k_z)
    n = tanh(i_n + r (k_n + state_bias))          state_bias (H,)
    h = (1 - z) n + z s

A program's score is ``bias + sum over its loops of softmax(scatter h) . (score h)``, with scatter (S, H),
score (S, H), bias (1,): the linear layer is applied to each loop's slots before they are summed."""

Scorer = Callable[[LoopTrees], NDArray[Any]]  # scores of programs, (n,)
MakeScorer = Callable[[Weights], Scorer | None]  # creates a scorer from weights; None if it cannot


def loop_trees(table: NDArray[np.float32]) -> LoopTrees:
    """Build the trees of `hbtvm.cost_model.encoding.flat.flat_features`.

    `table`: float32, (n, len(FLAT_NAMES)). Non-finite values count as 0.
    Raises `ValueError` if these are not loop trees.
    """
    if table.ndim != 2 or table.shape[1] != len(FLAT_NAMES):
        raise ValueError(
            f"expected {len(FLAT_NAMES)} flattened loop features, got an array of shape {table.shape}"
        )
    flags = table.reshape(len(table), STATEMENTS, LEVELS, len(CONTEXT))[..., [_PRESENT, _SHARED]] > 0
    # Level by level: a loop's children, and the loops themselves, are in the order of nodes.
    present, shared = np.ascontiguousarray(flags.transpose(3, 0, 2, 1))
    _check(present, shared)
    unshared = present & ~shared
    program, place = np.divmod(np.flatnonzero(unshared), _PLACES)
    # A shared loop is the last unshared loop before it.
    node = (np.cumsum(unshared, dtype=np.int32) - 1).reshape(unshared.shape)
    starts, first = np.zeros(len(table) + 1, np.int64), np.zeros(len(place) + 1, np.int32)
    starts[1:] = node[:, -1, -1] + 1
    np.cumsum(np.bincount(node[:, :-1][unshared[:, 1:]], minlength=len(place)), out=first[1:])
    contexts = table.reshape(-1, len(CONTEXT)).take(program * _PLACES + _ROW[place], axis=0)
    if not np.isfinite(contexts).all():
        contexts = np.where(np.isfinite(contexts), contexts, np.float32(0))
    return LoopTrees(starts, first, np.flatnonzero(place >= STATEMENTS).astype(np.int32), contexts)


def _check(present: NDArray[np.bool_], shared: NDArray[np.bool_]) -> None:
    """Raise a ValueError for loops without a surrounding loop, or shared with no statement."""
    above = np.zeros_like(shared)
    above[:, :, 1:] = present[:, :, :-1]
    if (
        (present[:, 1:] & ~present[:, :-1]).any()
        or (shared[:, 1:] & ~shared[:, :-1]).any()
        or (shared & ~(present & above)).any()
    ):
        raise ValueError("the features are not loop trees: a loop lacks its parent or its sharing statement")
