"""Join forests over the same rows into one: their outputs side by side, or their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply


def side_by_side(forests: Sequence[Trees]) -> Node | None:
    """Return the outputs of all forests, computed by a single forest; None if they can't be joined."""
    rows, columns, firsts = _common_rows(forests), list[TreeEnsemble](), list[int]()
    if rows is None:
        return None
    first = 0
    for forest in forests:
        columns.append(_placed(forest, rows))
        firsts.append(first)
        first += forest.width
    divisor = np.concatenate([np.full(forest.width, forest.ensemble.divisor) for forest in forests])
    base = np.concatenate([forest.ensemble.base_score for forest in forests])
    same = bool(np.all(divisor == divisor[0]))
    whole = joined(columns, firsts, first, float(divisor[0]) if same else 1.0, base if same else 0.0 * base)
    sums: Node = Trees(rows, whole)
    if not same:
        sums = apply("divide", sums, divisor)
        sums = apply("add", sums, base) if base.any() else sums
    return sums


def mean(forests: Sequence[Trees]) -> Trees | None:
    """Return the mean of the forests' outputs, as one forest; None if they can't be joined.

    The sum over all trees is divided once, so that equal shares of whole votes are equal to the last bit.
    """
    first = forests[0]
    rows = _common_rows(forests)
    alike = all(
        forest.width == first.width and forest.ensemble.divisor == first.ensemble.divisor
        for forest in forests
    )
    if rows is None or not alike:
        return None
    base = np.mean([forest.ensemble.base_score for forest in forests], axis=0)
    divisor = first.ensemble.divisor * len(forests)
    placed = [_placed(forest, rows) for forest in forests]
    return Trees(rows, joined(placed, [0] * len(placed), first.width, divisor, base))


def widened(forest: Trees, positions: Sequence[int], width: int) -> Trees | None:
    """Return a forest with its outputs at some positions of `width`, 0 elsewhere; None if it can't be."""
    ensemble = forest.ensemble
    if ensemble.value_width != ensemble.n_outputs:
        return None
    value, base = np.zeros((ensemble.n_nodes, width)), np.zeros(width)
    value[:, list(positions)], base[list(positions)] = ensemble.value, ensemble.base_score
    return forest.on_ensemble(replace(ensemble, n_outputs=width, value=value, base_score=base))


def with_values(forest: Trees, value: np.ndarray, divisor: float) -> Trees:
    """Return the trees with other leaf values, float64, shape (N, outputs), without a base score."""
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
    """Return a key that is equal for columns of the same values."""
    return (column.source, column.allow_nan, column.allow_inf, *map(id, column.steps))


def comparisons_of(ensemble: TreeEnsemble) -> tuple[object, ...]:
    """Return a key that is equal for ensembles that compare numbers and categories in the same way."""
    # Without category sets their rule does not matter.
    return ensemble.compare_dtype, ensemble.negative_fraction_is_zero if ensemble.category_sets else None


def kind_of(forest: Trees) -> tuple[object, ...]:
    """Return a key that is equal for forests that can be joined."""
    ensemble, leaf = forest.ensemble, forest.x
    assert isinstance(leaf, TableRows)
    return (ensemble.value_width, *comparisons_of(ensemble), leaf.allow_nan, leaf.allow_inf)


def _common_rows(forests: Sequence[Trees]) -> TableRows | None:
    """Return a table's rows with all columns that the forests read; None if they can't be joined."""
    leaves = [forest.x for forest in forests if isinstance(forest.x, TableRows)]
    if len(leaves) < len(forests) or len(set(map(kind_of, forests))) > 1:
        return None
    first = leaves[0]
    if all(leaf.table is first.table for leaf in leaves):
        return first
    columns = {key(column): column for leaf in leaves for column in leaf.table.columns}
    return TableRows(Table(tuple(columns.values()), first.table.sparse), first.allow_nan, first.allow_inf)


def _placed(forest: Trees, rows: TableRows) -> TreeEnsemble:
    """Return a forest's trees over the features of `rows`."""
    assert isinstance(forest.x, TableRows)
    if forest.x.table is rows.table:
        return forest.ensemble
    at = {key(column): i for i, column in reversed(list(enumerate(rows.table.columns)))}
    place = np.array([at[key(column)] for column in forest.x.table.columns], np.int32)
    return forest.ensemble.over(place, len(rows.table))


def joined(
    ensembles: Sequence[TreeEnsemble],
    firsts: Sequence[int],
    outputs: int,
    divisor: float,
    base: np.ndarray,
) -> TreeEnsemble:
    """Return the trees of ensembles over the same features as one ensemble.

    `firsts`: the first output of each ensemble among the `outputs`.
    `divisor`, `base`: of the result.
    """
    first_set = np.cumsum([0, *(len(ensemble.category_sets) for ensemble in ensembles)])
    offset = np.cumsum([0, *(ensemble.n_nodes for ensemble in ensembles)])
    category_set = [
        np.where(ensemble.category_set >= 0, ensemble.category_set + start, -1).astype(np.int32)
        for start, ensemble in zip(first_set, ensembles, strict=False)
    ]
    tree_output = [ensemble.tree_output + first for ensemble, first in zip(ensembles, firsts, strict=True)]

    def nodes(name: str) -> np.ndarray:
        return np.concatenate([getattr(ensemble, name) for ensemble in ensembles])

    def facts(name: str) -> np.ndarray | None:
        absent = any(getattr(ensemble, name) is None for ensemble in ensembles)
        return None if absent else nodes(name)

    return TreeEnsemble(
        n_features=ensembles[0].n_features,
        n_outputs=outputs,
        compare_dtype=ensembles[0].compare_dtype,
        offset=np.concatenate(
            [[0], *(start + ensemble.offset[1:] for start, ensemble in zip(offset, ensembles, strict=False))]
        ),
        feature=nodes("feature"),
        threshold=nodes("threshold"),
        left=nodes("left"),
        right=nodes("right"),
        default_left=nodes("default_left"),
        zero_as_missing=nodes("zero_as_missing"),
        category_set=np.concatenate(category_set),
        value=nodes("value"),
        tree_output=np.concatenate(tree_output).astype(np.int32),
        base_score=base,
        divisor=divisor,
        category_sets=tuple(known for ensemble in ensembles for known in ensemble.category_sets),
        negative_fraction_is_zero=ensembles[0].negative_fraction_is_zero,
        precise=any(ensemble.precise for ensemble in ensembles),
        cover=facts("cover"),
        leaf_id=facts("leaf_id"),
    ).validate()
