"""Trees swallow what comes before them: monotone columns become thresholds, encoders category sets.

Every row ends in the leaf that the library's own operations lead to, in the same type of numbers:

- a threshold behind steps on a number becomes the last raw number that is still at most it (`cuts`), and
  the default direction the side on which the steps put a missing number;
- a split on the number of a code becomes a threshold on the code, where the codes on the left come before
  those on the right or after them, and a set of codes otherwise;
- a column that is neither is computed by numpy before the kernel;
- of scalers in front of trees that compare in float32, what a kernel may compute is kept, too (`prologue`);
- splits that every row passes the same way vanish (`prune`), and columns that no split reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.graph.columns.kernel_input import Coded, Feeds
from hbtvm.graph.columns.steps import Cast, Encode, Step
from hbtvm.graph.columns.table import Raw, Table
from hbtvm.graph.trees.ensemble import LEAF, CompareDtype, TreeEnsemble
from hbtvm.graph.trees.prologue import UNCHANGED, Prologue, Scaled
from hbtvm.graph.trees.splits import Splits
from hbtvm.graph.trees.tree_columns import TreeColumn, sort_codes


@dataclass(frozen=True)
class Folded:
    """Trees over feeds, for float64 and (if they are others) for float32 rows, and what was done.

    `scaled` ends in the same leaves as `anchor`, see `hbtvm.graph.graph.Graph.scaled`.
    """

    feeds: Feeds
    anchor: TreeEnsemble
    single: TreeEnsemble | None
    told: tuple[str, ...]
    scaled: Scaled | None = None


def fold(
    table: Table, ensemble: TreeEnsemble, names: Sequence[str] | None, allow_nan: bool, allow_inf: bool
) -> Folded:
    """Return the trees that read feeds in place of a table's columns.

    `table`: what the trees were trained on.
    `ensemble`: the trees: feature j is column j of the table.
    `names`: names of the input's columns, for errors.
    `allow_nan`, `allow_inf`: whether the trees take NaN and infinities.
    """
    used = [
        TreeColumn(table.columns[j], j, nodes, ensemble, allow_nan, allow_inf)
        for j, nodes in _readers(ensemble).items()
    ]
    # Where only codes are read, nothing tells what type numbers are of: float64, as without any.
    moved = any(one.moves for one in used) and not all(isinstance(one.found, Coded) for one in used)
    sort_codes(used)
    cast: tuple[Step, ...] = ()
    if moved and ensemble.compare_dtype == "float32":
        # The kernel compares in float64 from here on. What it does not cast itself comes to it cast.
        cast = (Cast("float32"),)
        for one in used:
            if one.special and not isinstance(one.found, Coded):
                one.found = None
    anchor = _rewrite(ensemble, used, "float64", "float64" if moved else ensemble.compare_dtype, moved)
    single = None
    if moved:
        wide = ensemble.compare_dtype == "float64" and any(one.wide for one in used)
        single = _rewrite(ensemble, used, "float32", "float64" if wide else "float32", moved)

    kept = _unmoved(ensemble, used) if cast else None
    read = {feature for one in (anchor, single, kept) if one is not None for feature in _read(one)}
    if all(isinstance(one.found, Coded) for one in used if one.index in read):
        single = kept = None
    feeds = Feeds(names)
    place = np.full(len(table), -1, np.int32)
    for one in used:
        if one.index in read:
            place[one.index] = one.feed(feeds, cast)
    if not feeds.feeds:
        # Kernels read one column at least: a code that is 0 whatever the value.
        feeds.codes(Raw(0), (Encode((), "code"),))
    scaled = None if kept is None else _scaled(kept, used, place, len(feeds.feeds))
    return Folded(
        feeds,
        _over(anchor, place, len(feeds.feeds)),
        None if single is None else _over(single, place, len(feeds.feeds)),
        _told(table, [one for one in used if one.index in read], anchor, scaled),
        scaled,
    )


def _readers(ensemble: TreeEnsemble) -> dict[int, np.ndarray]:
    """The split nodes that read each feature, by feature, of those that are read."""
    split = np.flatnonzero(~ensemble.is_leaf())
    order = split[np.argsort(ensemble.feature[split], kind="stable")]
    features, starts = np.unique(ensemble.feature[order], return_index=True)
    return dict(zip(features.tolist(), np.split(order, starts[1:]), strict=False))


def _rewrite(
    ensemble: TreeEnsemble, used: Sequence[TreeColumn], dtype: str, compare: CompareDtype, moved: bool
) -> TreeEnsemble:
    """The trees over what is fed, for raw numbers of a type; features are still the table's columns."""
    splits = Splits(ensemble, compare)
    for one in used:
        if isinstance(one.found, Coded):
            assert one.encoder is not None
            possible = len(one.encoder) - (one.encoder.unknown == "error")
            splits.codes(one.nodes, one.values[dtype], possible)
        elif one.found is None or one.special:
            splits.keep(one.nodes)
        else:
            chain = one.found[dtype]
            cuts = one.cuts_for(dtype) if moved and chain.constant is None else None
            splits.numbers(one.nodes, chain, cuts, one.which, one.nan_comes)
    return splits.ensemble()


def _unmoved(ensemble: TreeEnsemble, used: Sequence[TreeColumn]) -> TreeEnsemble | None:
    """The trees over scaled numbers; None where kernels can't compute these. Features as in `_rewrite`."""
    if any(one.arithmetic is None for one in used):
        return None
    return _rewrite(ensemble, used, "float64", "float32", False)


def _scaled(
    ensemble: TreeEnsemble, used: Sequence[TreeColumn], place: np.ndarray, width: int
) -> Scaled | None:
    """The trees over feeds, and the arithmetic on these; None where a feed would need it in two ways."""
    columns = [UNCHANGED] * width
    known = set()
    for one in used:
        # Of a constant column only NaN counts, which arithmetic keeps.
        if place[one.index] < 0 or one.constant:
            continue
        at, constants = int(place[one.index]), one.arithmetic
        assert constants is not None
        if at in known and columns[at] != constants:
            return None
        known.add(at)
        columns[at] = constants
    return Scaled(_over(ensemble, place, width), Prologue.of(columns))


def _read(ensemble: TreeEnsemble) -> list[int]:
    features: list[int] = np.unique(ensemble.feature[~ensemble.is_leaf()]).tolist()
    return features


def _over(ensemble: TreeEnsemble, place: np.ndarray, width: int) -> TreeEnsemble:
    """The trees with feeds in place of the table's columns."""
    feature = np.where(ensemble.is_leaf(), LEAF, place[ensemble.feature]).astype(np.int32)
    return replace(ensemble, n_features=width, feature=feature).validate()


def _told(
    table: Table, used: Sequence[TreeColumn], anchor: TreeEnsemble, scaled: Scaled | None
) -> tuple[str, ...]:
    numbers = [one for one in used if isinstance(one.found, dict) and one.steps]
    coded = [one for one in used if isinstance(one.found, Coded)]
    hosted = [one for one in used if one.found is None]
    told = []
    if len(used) < len(table):
        told.append(f"{len(used):,} of {len(table):,} columns are read")
    if numbers:
        splits = sum(len(one.nodes) for one in numbers)
        told.append(f"scalers and imputers of {len(numbers):,} columns: moved into {splits:,} thresholds")
    if scaled is not None and scaled.prologue.operations:
        columns = int((scaled.prologue.constants.T != UNCHANGED).any(axis=1).sum())
        told.append(f"for float64 rows, kernels for CPUs compute the scalers of {columns:,} columns")
    if coded:
        encoders = len({id(one.encoder) for one in coded})
        splits = sum(len(one.nodes) for one in coded)
        told.append(
            f"encoders of {encoders:,} columns ({len(coded):,} behind them): {splits:,} splits on codes, "
            f"{len(anchor.category_sets):,} category sets"
        )
    if hosted:
        told.append(f"{len(hosted):,} columns are computed by numpy before the kernel")
    return tuple(told)
