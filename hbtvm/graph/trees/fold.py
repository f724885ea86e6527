"""Fold steps into trees: monotone steps become thresholds, encoders category sets.

Every row ends in the same leaf as in the library, for the same type of numbers:

- a threshold behind steps on a number becomes the last raw number at most the threshold (`cuts`), and the
  default direction the side of a missing number;
- a split on the number of a code becomes a threshold on the code if the codes on the left come all before or
  all after those on the right, else a set of codes;
- numpy computes other columns before the kernel;
- of scalers in front of trees that compare in float32, the arithmetic that kernels can compute is kept, too
  (`prologue`);
- splits that every row passes the same way are removed (`prune`), and columns that no split reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.columns.kernel_input import Coded, Feeds
from hbtvm.graph.columns.steps import Cast, Encode, Step
from hbtvm.graph.columns.table import Raw, Table
from hbtvm.graph.trees.ensemble import CompareDtype, TreeEnsemble
from hbtvm.graph.trees.prologue import UNCHANGED, Prologue, Scaled
from hbtvm.graph.trees.splits import Splits
from hbtvm.graph.trees.tree_columns import TreeColumn, sort_codes


@dataclass(frozen=True)
class Folded:
    """Trees over feeds, for float64 and (if they differ) for float32 rows, and the rewrites in sentences.

    `scaled`: see `hbtvm.graph.graph.Graph.scaled`.
    """

    feeds: Feeds
    anchor: TreeEnsemble
    single: TreeEnsemble | None
    rewrites: tuple[str, ...]
    scaled: Scaled | None = None


def fold(
    table: Table, ensemble: TreeEnsemble, names: Sequence[str] | None, allow_nan: bool, allow_inf: bool
) -> Folded:
    """Return the trees that read feeds in place of a table's columns.

    `table`: the trees' input.
    `ensemble`: the trees: feature j is column j of the table.
    `names`: names of the input's columns, for errors.
    `allow_nan`, `allow_inf`: whether the trees accept NaN and infinities.
    """
    used = [
        TreeColumn(table.columns[j], j, nodes, ensemble, allow_nan, allow_inf)
        for j, nodes in _readers(ensemble).items()
    ]
    # If trees read only codes, the rows' type of numbers is unknown: float64 serves all.
    moved = any(column.moves for column in used) and not all(
        isinstance(column.form, Coded) for column in used
    )
    sort_codes(used)
    cast: tuple[Step, ...] = ()
    if moved and ensemble.compare_dtype == "float32":
        # The kernel compares in float64 from here on, so numbers that it does not cast have to be cast.
        cast = (Cast("float32"),)
        for column in used:
            if column.special and not isinstance(column.form, Coded):
                column.form = None
    anchor = _rewrite(ensemble, used, "float64", "float64" if moved else ensemble.compare_dtype, moved)
    single = None
    if moved:
        wide = ensemble.compare_dtype == "float64" and any(column.wide for column in used)
        single = _rewrite(ensemble, used, "float32", "float64" if wide else "float32", moved)

    kept = _unmoved(ensemble, used) if cast else None
    read = {feature for trees in (anchor, single, kept) if trees is not None for feature in _read(trees)}
    if all(isinstance(column.form, Coded) for column in used if column.index in read):
        single = kept = None
    feeds = Feeds(names)
    place = np.full(len(table), -1, np.int32)
    for column in used:
        if column.index in read:
            place[column.index] = column.feed(feeds, cast)
    if not feeds.feeds:
        # Kernels read at least one column: a code that is always 0.
        feeds.codes(Raw(0), (Encode((), "code"),))
    scaled = None if kept is None else _scaled(kept, used, place, len(feeds.feeds))
    return Folded(
        feeds,
        anchor.over(place, len(feeds.feeds)).validate(),
        None if single is None else single.over(place, len(feeds.feeds)).validate(),
        _rewrites(table, [column for column in used if column.index in read], anchor, scaled),
        scaled,
    )


def _readers(ensemble: TreeEnsemble) -> dict[int, np.ndarray]:
    """Return the split nodes that read each feature, by feature."""
    split = np.flatnonzero(~ensemble.is_leaf())
    order = split[np.argsort(ensemble.feature[split], kind="stable")]
    features, starts = np.unique(ensemble.feature[order], return_index=True)
    return dict(zip(features.tolist(), np.split(order, starts[1:]), strict=False))


def _rewrite(
    ensemble: TreeEnsemble, used: Sequence[TreeColumn], dtype: str, compare: CompareDtype, moved: bool
) -> TreeEnsemble:
    """Return the trees for raw numbers of a type and codes; features are still the table's columns."""
    splits = Splits(ensemble, compare)
    for column in used:
        if isinstance(column.form, Coded):
            assert column.encoder is not None
            possible = len(column.encoder) - (column.encoder.unknown == "error")
            splits.codes(column.nodes, column.values[dtype], possible)
        elif column.form is None or column.special:
            splits.keep(column.nodes)
        else:
            chain = column.form[dtype]
            cuts = column.cuts_for(dtype) if moved and chain.constant is None else None
            splits.numbers(column.nodes, chain, cuts, column.which, column.nan_comes)
    return splits.ensemble()


def _unmoved(ensemble: TreeEnsemble, used: Sequence[TreeColumn]) -> TreeEnsemble | None:
    """Return the trees over scaled numbers, as `_rewrite`; None if kernels can't compute these."""
    if any(column.arithmetic is None for column in used):
        return None
    return _rewrite(ensemble, used, "float64", "float32", False)


def _scaled(
    ensemble: TreeEnsemble, used: Sequence[TreeColumn], place: np.ndarray, width: int
) -> Scaled | None:
    """Return the trees over feeds, and the arithmetic on these; None if a feed would need two kinds of it."""
    columns = [UNCHANGED] * width
    known = set()
    for column in used:
        # In a constant column only NaN matters, which arithmetic keeps.
        if place[column.index] < 0 or column.constant:
            continue
        at, constants = int(place[column.index]), column.arithmetic
        assert constants is not None
        if at in known and columns[at] != constants:
            return None
        known.add(at)
        columns[at] = constants
    return Scaled(ensemble.over(place, width).validate(), Prologue.of(columns))


def _read(ensemble: TreeEnsemble) -> list[int]:
    features: list[int] = np.unique(ensemble.feature[~ensemble.is_leaf()]).tolist()
    return features


def _rewrites(
    table: Table, used: Sequence[TreeColumn], anchor: TreeEnsemble, scaled: Scaled | None
) -> tuple[str, ...]:
    numbers = [column for column in used if isinstance(column.form, dict) and column.steps]
    coded = [column for column in used if isinstance(column.form, Coded)]
    hosted = [column for column in used if column.form is None]
    rewrites = []
    if len(used) < len(table):
        rewrites.append(f"{len(used):,} of {len(table):,} columns are read")
    if numbers:
        splits = sum(len(column.nodes) for column in numbers)
        rewrites.append(f"scalers and imputers of {len(numbers):,} columns: moved into {splits:,} thresholds")
    if scaled is not None and scaled.prologue.operations:
        columns = int((scaled.prologue.constants.T != UNCHANGED).any(axis=1).sum())
        rewrites.append(f"for float64 rows, kernels for CPUs compute the scalers of {columns:,} columns")
    if coded:
        encoders = len({id(column.encoder) for column in coded})
        splits = sum(len(column.nodes) for column in coded)
        rewrites.append(
            f"encoders of {encoders:,} columns ({len(coded):,} behind them): {splits:,} splits on codes, "
            f"{len(anchor.category_sets):,} category sets"
        )
    if hosted:
        rewrites.append(f"{len(hosted):,} columns are computed by numpy before the kernel")
    return tuple(rewrites)
