"""`Parts`: the feeds and the table of a pipeline, as a package holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hbtvm import codec
from hbtvm.graph.columns import curves, dates, steps
from hbtvm.graph.columns.counters import Counters
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.row_operations import Buckets, Normalize
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, RowOperation, Table, parts_of
from hbtvm.graph.columns.text import Vectorize

codec.share(
    steps.Step,
    steps.Arithmetic, steps.Clip, steps.Within, steps.Above, steps.Cast, steps.Function, steps.Fill,
    steps.IsMissing, steps.ZeroIsMissing, steps.Encode, steps.Lookup, steps.Equals, HashText,
    curves.Bins, curves.Quantile, curves.NormalQuantile, curves.Power, dates.Dates, dates.DatePart,
)  # fmt: skip
codec.share(RowOperation, Normalize, Vectorize, Counters, Buckets)


@dataclass(frozen=True)
class Parts:
    """The parts of a graph in front of its kernel."""

    feeds: tuple[Feed, ...] = ()  # the columns of the kernel's matrix
    table: Table | None = None  # the result of a pipeline that transforms; None if it predicts

    @property
    def reads_texts(self) -> bool:
        """Whether an operation cuts texts into terms, which needs code beside the kernels."""
        return self._has(Vectorize)

    @property
    def reads_counters(self) -> bool:
        """Whether an operation looks up counters, for which the executor has code."""
        return self._has(Counters)

    def _has(self, kind: type[RowOperation]) -> bool:
        operations = (source.operation for source in self._sources() if isinstance(source, Made))
        return any(isinstance(operation, kind) for operation in operations)

    def check(self, n_features: int) -> None:
        """Check that the input has all columns that are read.

        Raises `ValueError` otherwise.
        """
        last = max((source.index for source in self._sources() if isinstance(source, Raw)), default=0)
        if last >= n_features:
            raise ValueError(f"column {last} is read, but the input has {n_features} columns")

    def _sources(self) -> Iterator[Raw | Made]:
        """Yield the sources of all columns, including the inputs of operations, once for each operation."""
        seen: set[int] = set()
        waiting: list[Sequence[Column | Feed]] = [self.feeds]
        waiting += [] if self.table is None else [self.table.columns]
        while waiting:
            for part in parts_of(waiting.pop()):  # type: ignore[arg-type]
                sources: Iterable[Raw | Made] = (column.source for column in part)
                if isinstance(part, AllColumns):
                    sources = [Made(part.operation, 0)]
                for source in sources:
                    yield source
                    if isinstance(source, Made) and id(source.operation) not in seen:
                        seen.add(id(source.operation))
                        waiting.append(source.operation.inputs.columns)
