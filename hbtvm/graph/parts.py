"""`Parts`: the feeds and the table of a pipeline, as a package holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hbtvm import codec
from hbtvm.graph.columns import curves, steps
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, RowOperation, Table, parts_of
from hbtvm.graph.columns.text import Vectorize

codec.share(
    steps.Step,
    steps.Arithmetic, steps.Clip, steps.Within, steps.Above, steps.Cast, steps.Function, steps.Fill,
    steps.IsMissing, steps.ZeroIsMissing, steps.Encode, steps.Lookup, steps.Equals,
    curves.Bins, curves.Quantile, curves.NormalQuantile, curves.Power,
)  # fmt: skip
codec.share(RowOperation, Normalize, Vectorize)


@dataclass(frozen=True)
class Parts:
    """What of a graph stands in front of its kernel."""

    feeds: tuple[Feed, ...] = ()  # the columns of the kernel's matrix
    table: Table | None = None  # what a pipeline returns that transforms; None for one that predicts

    @property
    def reads_texts(self) -> bool:
        """Whether some operation cuts texts into terms, for which there is code beside the kernels."""
        return any(isinstance(one, Made) and isinstance(one.operation, Vectorize) for one in self._sources())

    def check(self, n_features: int) -> None:
        """Check that the input has all columns that are read.

        Raises `ValueError` if it has not.
        """
        last = max((one.index for one in self._sources() if isinstance(one, Raw)), default=0)
        if last >= n_features:
            raise ValueError(f"column {last} is read of an input of {n_features} columns")

    def _sources(self) -> Iterator[Raw | Made]:
        """The sources of all columns; of the columns of an operation that is read, once."""
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
