"""Shapley interaction values of a forest's columns, from the tables of its kernel of Shapley values.

On the path to a leaf (`hbtvm.graph.reasons.paths`) with value v and share of cover u, players i and j have
the interaction ::

    v * u / 2 * (o_i * w_i - 1) * (o_j * w_j - 1) * integral of product over k other than i, j of q_k(t)

(Lundberg et al., "From local explanations to global understanding with explainable AI for trees", eq. 7: the
integral of t**s * (1 - t)**(n - 2 - s) is the weight of a coalition of s among the n - 2 other players.) The
main effect of a player is its Shapley value less its interactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.explaining.explanation import Explanation
from hbtvm.runtime.explaining.games import matrix_of
from hbtvm.runtime.explaining.splits import LeafPaths, branches_taken, leaf_paths, tables_of
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.package.kernel import KernelEntry

if TYPE_CHECKING:
    from hbtvm.runtime.model import Model

_MOST = 1 << 22  # results of a row
_ROWS, _RESULTS = 64, 1 << 24  # rows at once, and their results
_NUMBERS = 1 << 17  # numbers of an array at once; they stay in a cache


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Shapley interaction values: `values` summed over an axis of columns are the Shapley values.

    Attributes
    ----------
    values
        float64, shape (n, P, P), or (n, P, P, O) if there are several outputs. ``values[:, i, j]`` is half of
        the interaction of columns i and j, ``values[:, i, i]`` the main effect of column i.
    base_values, data, feature_names, output_names
        As of `hbtvm.Explanation`.
    """

    values: np.ndarray
    base_values: np.ndarray
    data: np.ndarray
    feature_names: Any
    output_names: Any = None

    def __repr__(self) -> str:
        rows, columns = self.values.shape[:2]
        return f"<hbtvm.Interactions: {rows:,} rows x {columns:,} x {columns:,} features>"


def of_pairs(view: Model, X: Any, explained: Explanation) -> Interactions:
    """Return the interactions of rows, whose Shapley values are `explained`, by the view "reasons".

    Raises `InputError` if the view is of a model whose interactions are not known.
    """
    package = view.package
    outputs, players = package.output.shape[0], package.output.shape[1] - 1
    if on_gpu(package.target):
        raise InputError("packages for GPUs have no interactions; compile the model for a CPU.")
    if outputs * players**2 > _MOST:
        raise InputError(f"{players:,} columns have too many pairs for interactions; explain without them.")
    values = np.zeros((len(explained.values), outputs, players, players))
    if package.forest["operator"] == "reasons":
        rows = matrix_of(view, X)
        tables = tables_of(_kernel_for(rows, package.kernels))
        values = interactions(tables, package.forest, rows, outputs)
    elif package.forest["operator"] != "linear":
        raise InputError("this model has reasons, but no interactions: it is a sum of terms of columns.")
    own = np.arange(players)
    single = explained.values.reshape(len(values), players, outputs).transpose(0, 2, 1)
    values[:, :, own, own] = single - values.sum(axis=3)
    ordered = values.transpose(0, 2, 3, 1)
    return Interactions(
        ordered[..., 0] if explained.values.ndim == 2 else ordered,
        explained.base_values,
        explained.data,
        explained.feature_names,
        explained.output_names,
    )


def _kernel_for(rows: np.ndarray, kernels: Sequence[KernelEntry]) -> KernelEntry:
    """Return a kernel for rows of a type, which may have missing values if the model takes them."""
    return max(kernels, key=lambda kernel: (kernel.dtype == rows.dtype, kernel.missing))


def interactions(
    tables: Mapping[str, np.ndarray], facts: Mapping[str, Any], X: np.ndarray, outputs: int
) -> np.ndarray:
    """Return the interactions of different columns, without main effects: float64, shape (n, O, P, P).

    `tables`: of a kernel of Shapley values, by name.
    `facts`: of its forest, see `hbtvm.runtime.package.facts.anchor_facts`.
    `X`: rows as the kernel reads them, shape (n, features).
    `outputs`: raw scores, O.
    """
    players = int(facts["players"])
    groups = leaf_paths(tables["split"], tables["number"], players + 1)
    points = tables["point"].astype(np.float64)
    points = points[:, points[2] != 0]
    result = np.zeros((len(X), outputs, players, players))
    rows = min(_ROWS, max(1, _RESULTS // (outputs * players**2)))
    for start in range(0, len(X), rows):
        taken = branches_taken(tables, facts, X[start : start + rows])
        block = np.zeros((outputs * players * players, taken.shape[1]))
        for group in groups:
            pairs = group.player.shape[1] * (group.player.shape[1] - 1) // 2
            step = max(1, _NUMBERS // (pairs * taken.shape[1]))
            for at in range(0, len(group.player), step):
                _add(group, slice(at, at + step), taken, points, players, block)
        half = block.T.reshape(-1, outputs, players, players)
        result[start : start + rows] = half + half.transpose(0, 1, 3, 2)
    result /= 2 * float(facts["divisor"])
    return result


def _add(
    paths: LeafPaths, part: slice, taken: np.ndarray, points: np.ndarray, players: int, block: np.ndarray
) -> None:
    """Add the integrals of some leaves' pairs of players, in one order of each, times the leaves' terms."""
    weight = taken[paths.branch[part]] * paths.weight[part, :, None]  # o * w: leaves, players, rows
    players_on_path = weight.shape[1]
    first, second = np.triu_indices(players_on_path, 1)
    pairs = np.zeros((len(weight), len(first), weight.shape[2]))
    for point, rest, share in points.T:
        q = rest + point * weight
        ratio = (weight - 1) / q
        left = ratio * (share * q.prod(axis=1))[:, None]
        at = 0
        for one in range(players_on_path - 1):
            stop = at + players_on_path - 1 - one
            pairs[:, at:stop] += left[:, one : one + 1] * ratio[:, one + 1 :]
            at = stop
    player, term = paths.player[part], paths.term[part]
    of = player[:, first] * players + player[:, second]
    for value in range(term.shape[1]):
        at = ((paths.output[part] + value) * (players * players))[:, None] + of
        order = np.argsort(at, axis=None, kind="stable")
        places = at.reshape(-1)[order]
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        terms = (pairs * term[:, value, None, None]).reshape(len(places), -1)[order]
        block[places[starts]] += np.add.reduceat(terms, starts, axis=0)
