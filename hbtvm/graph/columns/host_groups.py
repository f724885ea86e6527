"""Groups of columns with the same kinds of steps: one call of numpy for each step of a group.

A step of one column takes numpy a microsecond however few rows there are. Columns whose steps are of the same
kinds, in the same order, differ in constants only; so a matrix of them takes as long as one column. The
operations and their types are those of `Step.apply` and `RowOperation.reference`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.step_groups import FLOATS, kind_of, together
from hbtvm.graph.columns.steps import Cast, Encode, Fill, IsMissing, Lookup, Step
from hbtvm.graph.columns.table import Made, Raw, RowOperation


class HostGroups:
    """Computes feeds from raw columns that are numbers.

    `feeds`: by their places in the matrix.
    `coded`: whether to take feeds that look up codes; the caller then passes codes in place of values.
    `places`: the feeds that it computes, in the order of its results; the others begin with values, or make
        codes.
    `raws`: the input's columns that it reads as numbers.
    `codes`: the input's columns that it reads as codes, each with the steps up to those.
    """

    def __init__(self, feeds: Mapping[int, Feed], coded: bool = False) -> None:
        self.places = [j for j, feed in feeds.items() if _groups(feed.source, feed.steps, coded)]
        chosen = [feeds[j] for j in self.places]
        leaves = {_key(leaf): leaf for feed in chosen for leaf in _leaves(feed.source, feed.steps)}
        self.raws = sorted(raw for raw, *steps in leaves if not steps)
        known = {key: leaf for key, leaf in leaves.items() if len(key) > 1}
        self.codes = [(raw.index, steps) for raw, steps in known.values()]
        self._operations: dict[RowOperation, _Rows] = {}
        keys: list[tuple[int, ...]] = [*((raw,) for raw in self.raws), *known]
        row_of = {key: i for i, key in enumerate(keys)}
        self._block = _Block(
            [(feed.source, feed.steps) for feed in chosen],
            [not feed.allow_inf for feed in chosen],
            row_of,
            self._operations,
        )

    def compute(self, x: np.ndarray) -> np.ndarray | None:
        """Compute the feeds of `places`.

        `x`: numbers, float32 or float64, shape (columns of `raws` and behind them `codes`, n).
        Returns float32 or float64 (the feeds' widest type), shape (feeds of `places`, n). None if some value
        may have to be refused; `hbtvm.graph.columns.evaluate.Evaluator` then checks column by column.
        """
        if x.dtype not in FLOATS:
            return None
        with np.errstate(all="ignore"):
            return self._block.compute(_Batch(x, self._operations))


class _Batch:
    """Raw numbers of a batch of rows, and the results of row operations."""

    def __init__(self, x: np.ndarray, operations: Mapping[RowOperation, _Rows]) -> None:
        self.x, self._operations = x, operations
        self._results: dict[RowOperation, np.ndarray | None] = {}

    def source(self, operation: RowOperation | None) -> np.ndarray | None:
        """Return raw numbers, or an operation's, shape (columns, n); None if its inputs may be refused."""
        if operation is None:
            return self.x
        if operation not in self._results:
            self._results[operation] = self._operations[operation].compute(self)
        return self._results[operation]


class _Rows:
    """A row operation and the columns that it reads."""

    def __init__(self, operation: RowOperation, block: _Block) -> None:
        self._reference, self._block = operation.reference, block
        columns = operation.inputs.columns
        self._no_nan = np.array([[not column.allow_nan] for column in columns])
        self._no_inf = np.array([[not column.allow_inf] for column in columns])
        self._guards = bool(self._no_nan.any() or self._no_inf.any())

    def compute(self, batch: _Batch) -> np.ndarray | None:
        x = self._block.compute(batch)
        if x is None or (self._guards and not np.isfinite(x).all() and self._refuses(x)):
            return None
        result: np.ndarray = self._reference(np.ascontiguousarray(x.T)).T
        return result

    def _refuses(self, x: np.ndarray) -> bool:
        return bool((np.isnan(x) & self._no_nan).any() or (np.isinf(x) & self._no_inf).any())


class _Block:
    """Columns, grouped by the kinds of their steps."""

    def __init__(
        self,
        columns: Sequence[tuple[Raw | Made, tuple[Step, ...]]],
        no_inf: Sequence[bool],
        row_of: Mapping[tuple[int, ...], int],
        operations: dict[RowOperation, _Rows],
    ) -> None:
        self._width = len(columns)
        members: dict[Hashable, list[int]] = {}
        for i, (source, steps) in enumerate(columns):
            operation = None if isinstance(source, Raw) else source.operation
            if operation is not None and operation not in operations:
                inputs = [(column.source, column.steps) for column in operation.inputs.columns]
                inner = _Block(inputs, [False] * len(inputs), row_of, operations)
                operations[operation] = _Rows(operation, inner)
            members.setdefault((operation, *map(kind_of, _parts(source, steps)[1])), []).append(i)
        self._groups: list[_Group] = []
        for places in members.values():
            sources = [columns[i][0] for i in places]
            chains = zip(*(_parts(*columns[i])[1] for i in places), strict=True)
            rows = [
                row_of[_key(_leaf(*columns[i]))] if isinstance(source, Raw) else source.index
                for i, source in zip(places, sources, strict=True)
            ]
            operation = None if isinstance(sources[0], Raw) else sources[0].operation
            self._groups.append(_Group(places, operation, rows, list(chains), [no_inf[i] for i in places]))

    def compute(self, batch: _Batch) -> np.ndarray | None:
        """Return all columns, shape (columns, n), in their common type; None if values may be refused."""
        parts = []
        for group in self._groups:
            part = group.compute(batch)
            if part is None:
                return None
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        out = np.empty((self._width, batch.x.shape[1]), np.result_type(*parts))
        for group, part in zip(self._groups, parts, strict=True):
            out[group.places] = part
        return out


class _Group:
    """Columns of the same source with the same kinds of steps."""

    def __init__(
        self,
        places: list[int],
        operation: RowOperation | None,
        rows: list[int],
        chains: list[tuple[Step, ...]],
        no_inf: list[bool],
    ) -> None:
        self.places = places
        self._operation, self._rows = operation, np.array(rows)
        self._first = rows if rows == list(range(len(rows))) else None
        self._applies = [together(steps) for steps in chains]
        self._no_inf = np.array(no_inf)[:, None] if any(no_inf) else None

    def compute(self, batch: _Batch) -> np.ndarray | None:
        x = batch.source(self._operation)
        if x is None:
            return None
        x = x[: len(self._first)] if self._first is not None else x[self._rows]
        if self._no_inf is not None and (np.isinf(x) & self._no_inf).any():
            return None
        for apply in self._applies:
            x = apply(x)
        return x


def _parts(source: Raw | Made, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the leading steps that make codes of values, if any, and the steps on numbers."""
    if isinstance(source, Raw):
        for i, step in enumerate(steps):
            if isinstance(step, Encode):
                return steps[: i + 1], steps[i + 1 :]
            if not isinstance(step, Fill | IsMissing):
                break
    return (), steps


def _leaf(source: Raw | Made, steps: tuple[Step, ...]) -> tuple[Raw, tuple[Step, ...]]:
    assert isinstance(source, Raw)
    return source, _parts(source, steps)[0]


def _key(leaf: tuple[Raw, tuple[Step, ...]]) -> tuple[int, ...]:
    """Return a key that is equal for columns that read the same values."""
    return leaf[0].index, *map(id, leaf[1])


def _leaves(source: Raw | Made, steps: tuple[Step, ...]) -> Iterator[tuple[Raw, tuple[Step, ...]]]:
    """Yield the raw columns of a column; if they are read as codes, with the steps up to the codes."""
    if isinstance(source, Raw):
        yield _leaf(source, steps)
    else:
        for column in source.operation.inputs.columns:
            yield from _leaves(column.source, column.steps)


def _groups(source: Raw | Made, steps: tuple[Step, ...], coded: bool) -> bool:
    before, after = _parts(source, steps)
    if (before and not coded) or any(kind_of(step) is None for step in after):
        return False
    tables = [i for i, step in enumerate(after) if isinstance(step, Lookup)]
    if tables and not (before and all(isinstance(step, Cast) for step in after[: tables[0]])):
        return False
    if len(tables) > 1:
        return False
    if isinstance(source, Raw):
        return True
    return all(_groups(column.source, column.steps, coded) for column in source.operation.inputs.columns)
