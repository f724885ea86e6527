"""Explanations of blocks of rows as a table and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.arrow_in import arrow_parquet
from hbtvm.cli.rows.data_out import writing
from hbtvm.cli.rows.text_in import suffix_of
from hbtvm.report.reasons import cell, render

if TYPE_CHECKING:
    from hbtvm.runtime.explaining.explanation import Explanation, Sign

Blocks = Iterable[tuple["Explanation", list[Any]]]
"""Explanations, each with the columns to keep."""


class Table:
    """The columns of a file of reasons.

    `first`: the first rows' explanation, which has the names of columns and outputs.
    `top`, `sign`: number and sign of the strongest reasons; without `top`, all contributions.
    `errors`: whether to write standard errors.
    `keep`: names of columns of the data that come first.
    Raises `UsageError` if two columns would have one name.
    """

    def __init__(
        self, first: Explanation, top: int | None, sign: Sign, errors: bool, keep: Sequence[str]
    ) -> None:
        self._top, self._sign, self._errors = top, sign, errors
        features, outputs = list(first.feature_names), first.output_names
        if top is not None:
            several = ["output"] if isinstance(outputs, tuple) else []
            reasons = [
                f"{what}_{i}" for i in range(1, top + 1) for what in ("reason", "value", "contribution")
            ]
            own = [*several, "base_value", "score", *reasons]
        else:
            own = ["base_value", *features, *(f"error_{name}" for name in features if errors)]
            if isinstance(outputs, tuple):
                own = [f"{output}_{name}" for output in outputs for name in own]
        self.names = [*keep, *own]
        for i, name in enumerate(keep):
            if name in (*own, *keep[:i]):
                raise UsageError(f"--keep {name}: this column would be in the output twice")

    def write(self, path: Path | None, blocks: Blocks) -> None:
        """Write explanations to a file, or as CSV to standard output."""
        suffix = "" if path is None else suffix_of(path)
        with writing(path, self.names) as writer:
            for explanation, kept in blocks:
                if self._top is None:
                    writer.write(self._contributions(explanation), kept)
                else:
                    # A column of JSON may hold numbers and texts.
                    columns = self._reasons(explanation, self._top, suffix != ".jsonl")
                    if suffix == ".parquet":
                        columns = list(map(_typed, columns))
                    writer.write(np.empty((len(explanation), 0)), [*kept, *columns])

    def _contributions(self, explanation: Explanation) -> np.ndarray:
        """Return base values and contributions, and errors, of each output in turn."""
        base = explanation.base_values[:, None]
        parts = [base, explanation.values]
        if self._errors:
            errors = explanation.errors
            parts.append(np.zeros_like(explanation.values) if errors is None else errors)
        table = np.concatenate(parts, axis=1)
        return table if table.ndim == 2 else table.transpose(0, 2, 1).reshape(len(table), -1)

    def _reasons(self, explanation: Explanation, top: int, texts: bool) -> list[list[Any]]:
        """Return the columns of the strongest reasons, with None where there are fewer.

        `texts`: whether values become texts; None if they are missing.
        """
        columns: list[list[Any]] = []
        if isinstance(explanation.output_names, tuple):
            explanation, outputs = explanation.highest()
            columns.append(outputs.tolist())
        score = explanation.base_values + explanation.values.sum(axis=1)
        columns += [explanation.base_values.tolist(), score.tolist()]
        strongest = explanation.top(top, self._sign)
        for i in range(top):
            if i >= strongest.names.shape[1]:
                columns += [[None] * len(explanation)] * 3
                continue
            amounts = strongest.contributions[:, i].tolist()
            columns += [
                strongest.names[:, i].tolist(),
                [cell(value) or None if texts else value for value in strongest.values[:, i]],
                [None if amount != amount else amount for amount in amounts],
            ]
        return columns


def _typed(column: list[Any]) -> Any:
    """Return a column of Arrow, whose type does not depend on the rows of a block."""
    arrow_parquet()
    import pyarrow

    texts = any(isinstance(value, str) for value in column)
    return pyarrow.array(column, pyarrow.string() if texts else pyarrow.float64())


class Page:
    """Collects rows of a page.

    `row`: number of the row of the waterfall, from 1.
    `most`: most rows of the beeswarm, the first.
    """

    def __init__(self, row: int, most: int) -> None:
        self._row, self._most = row, most
        self._done = 0
        self._parts: list[Explanation] = []
        self._one: Explanation | None = None

    def passing(self, blocks: Blocks) -> Iterator[tuple[Explanation, list[Any]]]:
        """Yield the blocks, and keep what the page shows."""
        for explanation, kept in blocks:
            if self._done < self._most:
                self._parts.append(explanation[: self._most - self._done])
            at = self._row - 1 - self._done
            if 0 <= at < len(explanation):
                self._one = explanation[at]
            self._done += len(explanation)
            yield explanation, kept

    def render(self, package: str, data: str, made_by: str) -> str:
        """Return the page; raises a `UsageError` if there is no such row."""
        one = self._one
        if one is None:
            raise UsageError(f"--row {self._row}: {data} has {self._done:,} rows")
        parts, notes = self._parts, []
        names = one.feature_names
        if isinstance(one.output_names, tuple):
            highest = int((one.base_values + one.values.sum(axis=0)).argmax())
            notes.append(f"The score of {one.output_names[highest]}, the highest of row {self._row:,}.")
            one, parts = one[..., highest], [part[..., highest] for part in parts]
        values, cells = (
            np.concatenate(list(each)) for each in ((p.values for p in parts), (p.data for p in parts))
        )
        if parts[0].errors is not None:
            worst = max(float(part.errors.max()) for part in parts if part.errors is not None)
            notes.append(f"Estimated from draws; the largest standard error is {worst:.2g}.")
        row = (f"Row {self._row:,}", one.values, one.data, float(one.base_values))
        return render(values, cells, names, row, f"{package}: reasons for {data}", notes, made_by)
