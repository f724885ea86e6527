"""`TreeColumn`: a column that trees read, while `fold` moves its steps into the trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.kernel_input import Coded, Feeds, keeps_nan, resolve
from hbtvm.graph.columns.steps import Cast, Encode, Fill, IsMissing, Lookup, Step, Within
from hbtvm.graph.columns.table import Column
from hbtvm.graph.trees.cuts import Chain, Cuts, chain_of
from hbtvm.graph.trees.ensemble import CompareDtype, TreeEnsemble
from hbtvm.graph.trees.prologue import UNCHANGED, Constants, arithmetic_of

_MOST_CODES = 1 << 24  # float32 holds every integer up to this


class TreeColumn:
    """A column of the table that trees read.

    `index`, `nodes`: its index, and the splits that read it.
    `special`: whether some of them are not plain comparisons: categories, or zeros that are missing.
    `form`: codes; a number's chains for float64 and float32 rows; or None, if numpy computes it.
    `cuts`: cuts of raw numbers by the distinct thresholds of `nodes`, by the numbers' type.
    `values`: the number of each code, by the type of the numbers beside it.
    `moves`: whether steps change numbers, so that float64 and float32 rows need different trees.
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
        self.values: dict[str, np.ndarray] = {}
        self.infinite = self._lets_infinities()
        self.form: Coded | dict[str, Chain] | None = None
        resolved = resolve(column)
        if isinstance(resolved, Coded):
            self.form = resolved
            codes = np.arange(len(resolved), dtype=np.float32)
            self.values = {
                "float64": resolved.values,
                "float32": of_numbers(resolved.after, codes).astype(np.float64),
            }
            self.moves = self._apart(*(x.astype(ensemble.compare_dtype) for x in self.values.values()))
        elif not (self.special and column.steps):
            self.form = self._chains(ensemble.compare_dtype)

    @property
    def encoder(self) -> Encode | None:
        """The step that makes its codes."""
        return self._column.encoder

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        return self._column.steps

    @property
    def wide(self) -> bool:
        """Whether numpy returns float64 numbers for float32 rows."""
        return self.form is None and bool(of_numbers(self.steps, np.zeros(1, np.float32)).dtype == np.float64)

    @property
    def nan_comes(self) -> bool:
        """Whether a kernel may read NaN from it."""
        if isinstance(self.form, dict):
            chain = self.form["float64"]
            if _narrow(chain):
                return self._allow_nan
            return self._column.allow_nan and (self._allow_nan or not np.isnan(chain.at_nan))
        return self._allow_nan and (self._column.allow_nan or not keeps_nan(self.steps))

    @property
    def constant(self) -> bool:
        """Whether its steps map all numbers but NaN to the same number."""
        return isinstance(self.form, dict) and self.form["float64"].constant is not None

    @property
    def arithmetic(self) -> Constants | None:
        """The arithmetic between the feed and the trees; None if kernels can't compute it."""
        if isinstance(self.form, Coded):
            return UNCHANGED if len(self.form) <= _MOST_CODES else None
        if self.form is None or self.constant:
            return UNCHANGED
        return None if _narrow(self.form["float64"]) else arithmetic_of(self.steps)

    @property
    def coder(self) -> tuple[object, ...]:
        """A key that is equal for columns of the same codes; empty for other columns."""
        if not isinstance(self.form, Coded):
            return ()
        return (self._column.source, *map(id, self.form.prefix))

    def sort_codes(self) -> None:
        """Order the categories by their numbers, with unknown values last."""
        assert isinstance(self.form, Coded) and self.encoder is not None
        prefix, values = self.form.prefix, self.form.values
        order = np.argsort(values[:-1], kind="stable")
        if self.encoder.unknown == "code" and np.all(values[:-1] >= values[-1]):
            order = order[::-1]
        if np.array_equal(order, np.arange(len(order))):
            return
        known = self.encoder.categories
        encode = replace(self.encoder, categories=tuple(known[code] for code in order))
        places = np.append(order, len(order))
        self.values = {dtype: numbers[places] for dtype, numbers in self.values.items()}
        self.form = Coded((*prefix[:-1], encode), (Lookup(values[places]),))

    def feed(self, feeds: Feeds, cast: tuple[Step, ...]) -> int:
        """Feed the column, with `cast` behind numbers that numpy computes; return the matrix's column."""
        column = self._column
        if isinstance(self.form, Coded):
            return feeds.codes(column.source, self.form.prefix)
        if self.form is None:
            return feeds.host(column.then(*cast), self.nan_comes, self.infinite)
        chain = self.form["float64"]
        if _narrow(chain):
            domain = Column(column.source, (Within(*chain.domain),))
            return feeds.host(domain, self.nan_comes, self.infinite)
        return feeds.number(column, self.nan_comes, self.infinite)

    def cuts_for(self, dtype: str) -> Cuts:
        """Return the thresholds' cuts of numbers of a type."""
        assert isinstance(self.form, dict)
        if dtype not in self.cuts:
            cuts = self.form[dtype].cuts(self.thresholds)
            assert cuts is not None, "casts are monotone"
            self.cuts[dtype] = cuts
        return self.cuts[dtype]

    def _chains(self, compare: CompareDtype) -> dict[str, Chain] | None:
        """Return the chains for both types; None if one of them can't move the thresholds."""
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
        """Return whether a threshold separates filled numbers of float32 rows from those of float64 rows."""
        steps = (*self.steps, Cast(compare))
        return self._apart(
            *(of_numbers(steps, np.array([np.nan], dtype)) for dtype in ("float64", "float32"))
        )

    def _apart(self, wide: np.ndarray, narrow: np.ndarray) -> bool:
        """Return whether a threshold separates any value from its counterpart."""
        differ = wide != narrow
        if self.special:
            return bool(np.any(differ & ~(np.isnan(wide) & np.isnan(narrow))))
        sides = [np.searchsorted(self.thresholds, x[differ]) for x in (wide, narrow)]
        return not np.array_equal(sides[0], sides[1])

    def _lets_infinities(self) -> bool:
        if not self._column.allow_inf or self._allow_inf or self._column.encoder is not None:
            return self._column.allow_inf
        return bool(np.isfinite(of_numbers(self.steps, np.array([-np.inf, np.inf]))).all())


def sort_codes(used: Sequence[TreeColumn]) -> None:
    """Sort the codes that a single column reads, so that its splits become thresholds rather than sets."""
    readers = Counter(column.coder for column in used)
    for column in used:
        if column.coder and readers[column.coder] == 1 and not column.special:
            column.sort_codes()


def _narrow(chain: Chain) -> bool:
    return chain.domain != (-np.inf, np.inf)


def _trivial(steps: tuple[Step, ...], compare: CompareDtype) -> bool:
    """Return whether steps do not change numbers for trees that compare in a type."""
    for step in steps:
        if isinstance(step, IsMissing):
            # Behind it, all numbers are the same.
            return True
        if not (isinstance(step, Fill) or (isinstance(step, Cast) and step.dtype in ("float64", compare))):
            return False
    return True
