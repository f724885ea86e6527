"""Trees swallow what comes before them: monotone columns become thresholds, encoders category sets.

Every row ends in the leaf that the library's own operations lead to, in the same type of numbers:

- a threshold behind steps on a number becomes the last raw number that is still at most it (`cuts`), and
  the default direction the side on which the steps put a missing number;
- a split on the number of a code becomes a threshold on the code, where the codes on the left come before
  those on the right or after them, and a set of codes otherwise;
- a column that is neither is computed by numpy before the kernel;
- splits that every row passes the same way vanish (`prune`), and columns that no split reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.graph.cuts import Chain, Cuts, chain_of
from hbtvm.graph.ensemble import LEAF, CompareDtype, TreeEnsemble
from hbtvm.graph.evaluate import of_numbers
from hbtvm.graph.lower import Coded, Feeds, keeps_nan, resolve
from hbtvm.graph.splits import Splits
from hbtvm.graph.steps import Cast, Encode, Fill, IsMissing, Step, Within
from hbtvm.graph.table import Column, Raw, Table


@dataclass(frozen=True)
class Folded:
    """Trees over feeds, for float64 and (if they are others) for float32 rows, and what was done."""

    feeds: Feeds
    anchor: TreeEnsemble
    single: TreeEnsemble | None
    told: tuple[str, ...]


def fold(
    table: Table, ensemble: TreeEnsemble, names: Sequence[str] | None, allow_nan: bool, allow_inf: bool
) -> Folded:
    """Return the trees that read feeds in place of a table's columns.

    Parameters
    ----------
    table
        What the trees were trained on.
    ensemble
        The trees: feature j is column j of the table.
    names
        Names of the input's columns, for errors.
    allow_nan, allow_inf
        Whether the trees take NaN and infinities.
    """
    used = [
        _Used(table.columns[j], j, nodes, ensemble, allow_nan, allow_inf)
        for j, nodes in _readers(ensemble).items()
    ]
    moved = any(one.moves for one in used)
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

    read = set(_read(anchor)) | (set(_read(single)) if single is not None else set())
    feeds = Feeds(names)
    place = np.full(len(table), -1, np.int32)
    for one in used:
        if one.index in read:
            place[one.index] = one.feed(feeds, cast)
    if not feeds.feeds:
        # Kernels read one column at least: a code that is 0 whatever the value.
        feeds.codes(Raw(0), (Encode((), "code"),))
    return Folded(
        feeds,
        _over(anchor, place, len(feeds.feeds)),
        None if single is None else _over(single, place, len(feeds.feeds)),
        _told(table, [one for one in used if one.index in read], anchor),
    )


class _Used:
    """A column of the table that trees read.

    Attributes
    ----------
    index, nodes
        Its index, and the splits that read it.
    special
        Whether some of them are not plain comparisons: categories, or zeros that are missing.
    found
        What becomes of it: codes; a number's chains for float64 and float32 rows; or None, if numpy
        computes it.
    cuts
        Where thresholds cut raw numbers, by the numbers' type, for the distinct thresholds of `nodes`.
    moves
        Whether thresholds move: the steps change numbers.
    """

    def __init__(
        self,
        column: Column,
        index: int,
        nodes: np.ndarray,
        ensemble: TreeEnsemble,
        allow_nan: bool,
        allow_inf: bool,
    ) -> None:
        self._column, self.index, self.nodes = column, index, nodes
        self._allow_nan, self._allow_inf = allow_nan, allow_inf
        self.special = bool(
            np.any(ensemble.category_set[nodes] >= 0) or ensemble.zero_as_missing[nodes].any()
        )
        self.thresholds, self.which = np.unique(ensemble.threshold[nodes], return_inverse=True)
        self.moves, self.cuts = False, dict[str, Cuts]()
        self.infinite = self._lets_infinities()
        self.found: Coded | dict[str, Chain] | None = None
        resolved = resolve(column)
        if isinstance(resolved, Coded):
            self.found = resolved
        elif not (self.special and column.steps):
            self.found = self._chains(ensemble.compare_dtype)

    @property
    def encoder(self) -> Encode | None:
        """What makes its codes."""
        return self._column.encoder

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of its steps."""
        return self._column.steps

    @property
    def wide(self) -> bool:
        """Whether numpy makes float64 numbers of float32 ones."""
        return self.found is None and bool(
            of_numbers(self.steps, np.zeros(1, np.float32)).dtype == np.float64
        )

    @property
    def nan_comes(self) -> bool:
        """Whether a kernel may get NaN in it."""
        if isinstance(self.found, dict):
            chain = self.found["float64"]
            if _narrow(chain):
                return self._allow_nan
            return self._column.allow_nan and (self._allow_nan or not np.isnan(chain.at_nan))
        return self._allow_nan and (self._column.allow_nan or not keeps_nan(self.steps))

    def feed(self, feeds: Feeds, cast: tuple[Step, ...]) -> int:
        """Make its feed; numbers that numpy computes go through `cast` at last."""
        column = self._column
        if isinstance(self.found, Coded):
            return feeds.codes(column.source, self.found.prefix)
        if self.found is None:
            return feeds.host(column.then(*cast), self.nan_comes, self.infinite)
        chain = self.found["float64"]
        if _narrow(chain):
            domain = Column(column.source, (Within(*chain.domain),))
            return feeds.host(domain, self.nan_comes, self.infinite)
        return feeds.number(column, self.nan_comes, self.infinite)

    def cuts_for(self, dtype: str) -> Cuts:
        """Where the thresholds cut the numbers of a type."""
        assert isinstance(self.found, dict)
        if dtype not in self.cuts:
            cuts = self.found[dtype].cuts(self.thresholds)
            assert cuts is not None, "casts are monotone"
            self.cuts[dtype] = cuts
        return self.cuts[dtype]

    def _chains(self, compare: CompareDtype) -> dict[str, Chain] | None:
        """The chains for both types; None if one of them can't move the thresholds."""
        chains = {}
        self.moves = not _trivial(self.steps, compare) or self._fills_apart(compare)
        for dtype in ("float64", "float32"):
            chain = chain_of(self.steps, dtype, compare, self.infinite)
            cuts = chain.cuts(self.thresholds) if chain and self.moves and chain.constant is None else None
            if chain is None or (cuts is None and self.moves and chain.constant is None):
                self.moves = False
                return None
            chains[dtype] = chain
            if cuts is not None:
                self.cuts[dtype] = cuts
        if chains["float64"].domain != chains["float32"].domain:
            self.moves = False
            return None
        return chains

    def _fills_apart(self, compare: CompareDtype) -> bool:
        """Whether missing numbers are on other sides of thresholds where they are filled in in float32."""
        sides = [
            of_numbers((*self.steps, Cast(compare)), np.array([np.nan], dtype)) <= self.thresholds
            for dtype in ("float64", "float32")
        ]
        return bool(np.any(sides[0] != sides[1]))

    def _lets_infinities(self) -> bool:
        if not self._column.allow_inf or self._allow_inf or self._column.encoder is not None:
            return self._column.allow_inf
        return bool(np.isfinite(of_numbers(self.steps, np.array([-np.inf, np.inf]))).all())


def _narrow(chain: Chain) -> bool:
    return chain.domain != (-np.inf, np.inf)


def _trivial(steps: tuple[Step, ...], compare: CompareDtype) -> bool:
    """Whether steps leave numbers as they are, for trees that compare in some type."""
    for step in steps:
        if isinstance(step, IsMissing):
            # What follows does the same to all numbers.
            return True
        if not (isinstance(step, Fill) or (isinstance(step, Cast) and step.dtype in ("float64", compare))):
            return False
    return True


def _readers(ensemble: TreeEnsemble) -> dict[int, np.ndarray]:
    """The split nodes that read each feature, by feature, of those that are read."""
    split = np.flatnonzero(~ensemble.is_leaf())
    order = split[np.argsort(ensemble.feature[split], kind="stable")]
    features, starts = np.unique(ensemble.feature[order], return_index=True)
    return dict(zip(features.tolist(), np.split(order, starts[1:]), strict=False))


def _rewrite(
    ensemble: TreeEnsemble, used: Sequence[_Used], dtype: str, compare: CompareDtype, moved: bool
) -> TreeEnsemble:
    """The trees over what is fed, for raw numbers of a type; features are still the table's columns."""
    splits = Splits(ensemble, compare)
    for one in used:
        if isinstance(one.found, Coded):
            assert one.encoder is not None
            possible = len(one.encoder) - (one.encoder.unknown == "error")
            splits.codes(one.nodes, one.found.values, possible)
        elif one.found is None or one.special:
            splits.keep(one.nodes)
        else:
            chain = one.found[dtype]
            cuts = one.cuts_for(dtype) if moved and chain.constant is None else None
            splits.numbers(one.nodes, chain, cuts, one.which, one.nan_comes)
    return splits.ensemble()


def _read(ensemble: TreeEnsemble) -> list[int]:
    features: list[int] = np.unique(ensemble.feature[~ensemble.is_leaf()]).tolist()
    return features


def _over(ensemble: TreeEnsemble, place: np.ndarray, width: int) -> TreeEnsemble:
    """The trees with feeds in place of the table's columns."""
    feature = np.where(ensemble.is_leaf(), LEAF, place[ensemble.feature]).astype(np.int32)
    return replace(ensemble, n_features=width, feature=feature).validate()


def _told(table: Table, used: Sequence[_Used], anchor: TreeEnsemble) -> tuple[str, ...]:
    numbers = [one for one in used if isinstance(one.found, dict) and one.steps]
    coded = [one for one in used if isinstance(one.found, Coded)]
    hosted = [one for one in used if one.found is None]
    told = []
    if len(used) < len(table):
        told.append(f"{len(used):,} of {len(table):,} columns are read")
    if numbers:
        splits = sum(len(one.nodes) for one in numbers)
        told.append(f"scalers and imputers of {len(numbers):,} columns: moved into {splits:,} thresholds")
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
