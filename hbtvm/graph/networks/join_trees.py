"""Several forests over the same rows as one: their outputs side by side, or their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply


def side_by_side(forests: Sequence[Trees]) -> Node | None:
    """The outputs of all forests, computed by one; None where one can't hold them."""
    rows, columns = _common_rows(forests), []
    if rows is None:
        return None
    first = 0
    for one in forests:
        columns.append(_Placed(one, rows, first))
        first += one.width
    divisor = np.concatenate([np.full(one.width, one.ensemble.divisor) for one in forests])
    base = np.concatenate([one.ensemble.base_score for one in forests])
    same = bool(np.all(divisor == divisor[0]))
    joined = _joined(columns, first, float(divisor[0]) if same else 1.0, base if same else 0.0 * base)
    sums: Node = Trees(rows, joined)
    if not same:
        sums = apply("divide", sums, divisor)
        sums = apply("add", sums, base) if base.any() else sums
    return sums


def mean(forests: Sequence[Trees]) -> Trees | None:
    """The mean of the forests' outputs, as one forest; None where none is.

    The sum over all trees is divided once, so that equal shares of whole votes are equal to the last bit.
    """
    first = forests[0]
    rows = _common_rows(forests)
    alike = all(
        one.width == first.width and one.ensemble.divisor == first.ensemble.divisor for one in forests
    )
    if rows is None or not alike:
        return None
    base = np.mean([one.ensemble.base_score for one in forests], axis=0)
    divisor = first.ensemble.divisor * len(forests)
    return Trees(rows, _joined([_Placed(one, rows, 0) for one in forests], first.width, divisor, base))


def widened(forest: Trees, positions: Sequence[int], width: int) -> Trees | None:
    """A forest whose outputs are at some positions among others that are 0; None where it can't be."""
    ensemble = forest.ensemble
    if ensemble.value_width != ensemble.n_outputs:
        return None
    value, base = np.zeros((ensemble.n_nodes, width)), np.zeros(width)
    value[:, list(positions)], base[list(positions)] = ensemble.value, ensemble.base_score
    return forest.on_ensemble(replace(ensemble, n_outputs=width, value=value, base_score=base))


def with_values(forest: Trees, value: np.ndarray, divisor: float) -> Trees:
    """The same trees with other leaf values, float64, shape (N, outputs); no base score."""
    ensemble = forest.ensemble
    return forest.on_ensemble(
        replace(
            ensemble,
            n_outputs=value.shape[1],
            value=np.where(ensemble.is_leaf()[:, None], value, 0.0),
            base_score=np.zeros(value.shape[1]),
            tree_output=np.zeros(ensemble.n_trees, np.int32),
            divisor=divisor,
        )
    )


def key(column: Column) -> tuple[object, ...]:
    """What is equal for columns of the same values."""
    return (column.source, column.allow_nan, column.allow_inf, *map(id, column.steps))


def kind_of(forest: Trees) -> tuple[object, ...]:
    """What is equal for forests that can be joined."""
    ensemble, leaf = forest.ensemble, forest.x
    assert isinstance(leaf, TableRows)
    return (
        ensemble.value_width,
        ensemble.compare_dtype,
        # What does not matter does not keep forests apart.
        ensemble.negative_fraction_is_zero if ensemble.category_sets else None,
        leaf.allow_nan,
        leaf.allow_inf,
    )


def _common_rows(forests: Sequence[Trees]) -> TableRows | None:
    """The rows of a table with all columns that the forests read; None where they can't be joined."""
    leaves = [one.x for one in forests if isinstance(one.x, TableRows)]
    if len(leaves) < len(forests) or len(set(map(kind_of, forests))) > 1:
        return None
    first = leaves[0]
    if all(one.table is first.table for one in leaves):
        return first
    columns = {key(column): column for one in leaves for column in one.table.columns}
    return TableRows(Table(tuple(columns.values()), first.table.sparse), first.allow_nan, first.allow_inf)


class _Placed:
    """A forest with the features of `rows`, whose outputs begin at `first`."""

    def __init__(self, forest: Trees, rows: TableRows, first: int) -> None:
        self.ensemble, self.first, self.n_features = forest.ensemble, first, len(rows.table)
        assert isinstance(forest.x, TableRows)
        if forest.x.table is rows.table:
            self.feature = self.ensemble.feature
            return
        at = {key(column): i for i, column in reversed(list(enumerate(rows.table.columns)))}
        place = np.array([at[key(column)] for column in forest.x.table.columns], np.int32)
        leaf = self.ensemble.is_leaf()
        self.feature = np.where(leaf, LEAF, place[self.ensemble.feature]).astype(np.int32)


def _joined(forests: Sequence[_Placed], outputs: int, divisor: float, base: np.ndarray) -> TreeEnsemble:
    ensembles = [one.ensemble for one in forests]
    first_set = np.cumsum([0, *(len(one.category_sets) for one in ensembles)])
    offset = np.cumsum([0, *(one.n_nodes for one in ensembles)])

    def nodes(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name) for one in ensembles])

    return TreeEnsemble(
        n_features=forests[0].n_features,
        n_outputs=outputs,
        compare_dtype=ensembles[0].compare_dtype,
        offset=np.concatenate(
            [[0], *(start + one.offset[1:] for start, one in zip(offset, ensembles, strict=False))]
        ),
        feature=np.concatenate([one.feature for one in forests]),
        threshold=nodes("threshold"),
        left=nodes("left"),
        right=nodes("right"),
        default_left=nodes("default_left"),
        zero_as_missing=nodes("zero_as_missing"),
        category_set=np.concatenate(
            [
                np.where(one.category_set >= 0, one.category_set + start, -1).astype(np.int32)
                for start, one in zip(first_set, ensembles, strict=False)
            ]
        ),
        value=nodes("value"),
        tree_output=np.concatenate([one.ensemble.tree_output + one.first for one in forests]).astype(
            np.int32
        ),
        base_score=base,
        divisor=divisor,
        category_sets=tuple(one for ensemble in ensembles for one in ensemble.category_sets),
        negative_fraction_is_zero=ensembles[0].negative_fraction_is_zero,
        precise=any(one.precise for one in ensembles),
    ).validate()
