"""The columns of a pipeline's matrix that numpy computes, for one row or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.columns.evaluate import Evaluator, numbers_of
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.host_groups import HostGroups
from hbtvm.runtime.codes.coder import Coder, is_nan
from hbtvm.runtime.feeds.plan import FeedPlan
from hbtvm.runtime.rows.columns import ColumnReader
from hbtvm.runtime.rows.raw import RawColumn, Text, are_numbers

_F64 = np.dtype(np.float64)
_BLOCK = 1 << 16  # numbers per step of grouped columns, so that they stay in the cache


class HostFeeds:
    """Computes them, in groups where possible, else by `Evaluator`.

    `feeds`: all columns of the matrix.
    `plan`: has the feeds that numpy computes (``hosts``) and their input columns (``host_raws``).
    `columns`: names the input's columns.
    """

    def __init__(self, feeds: Sequence[Feed], plan: FeedPlan, columns: ColumnReader) -> None:
        self._feeds, self._hosts, self._columns = feeds, plan.hosts, columns
        self._host_raws, self._nulls = plan.host_raws, plan.nulls
        self._groups = HostGroups({j: feeds[j] for j in plan.hosts})
        self._all_grouped = self._groups.places == plan.hosts
        # With codes of texts, if codes make all columns numbers.
        coded = HostGroups({j: feeds[j] for j in plan.hosts}, coded=True)
        self._coded = coded if coded.codes and coded.places == plan.hosts else None
        self._codes = [(raw, Coder(steps)) for raw, steps in coded.codes] if self._coded else []
        place = {raw: i for i, raw in enumerate(plan.host_raws)}
        self._number_at = [place[raw] for raw in coded.raws]
        self._code_at = [place[raw] for raw, _ in self._codes]

    def row(self, values: Sequence[Any], from_dict: bool) -> list[float]:
        """Return the feeds of a row.

        Raises `InputError` if a step refuses a value.

        `values`: the row's values in the plan's ``host_raws``.
        `from_dict`: whether None is a missing value of any kind.
        """
        if from_dict:
            pairs = zip(values, self._host_raws, strict=True)
            values = [self._nulls[i] if value is None else value for value, i in pairs]
        if self._all_grouped and are_numbers(values):
            computed = self._groups.compute(np.array([values], _F64).T)
            if computed is not None:
                row: list[float] = computed[:, 0].tolist()
                return row
        if self._coded is not None:
            found_row = self._coded_row(self._coded, values)
            if found_row is not None:
                return found_row
        raw = {i: _one_value(value) for i, value in zip(self._host_raws, values, strict=True)}
        feeds = self.compute(raw, _F64)
        return [float(feeds[j][0]) for j in self._hosts]

    def _coded_row(self, groups: HostGroups, values: Sequence[Any]) -> list[float] | None:
        """Return `row`'s result by codes of texts; None for other values, or if one may be refused."""
        numbers = [values[i] for i in self._number_at]
        words = [values[i] for i in self._code_at]
        if not are_numbers(numbers) or not all(map(_is_word, words)):
            return None
        try:
            numbers += [coder.of_value(word) for (_, coder), word in zip(self._codes, words, strict=True)]
        except InputError:
            return None
        computed = groups.compute(np.array([numbers], _F64).T)
        return None if computed is None else computed[:, 0].tolist()

    def coded(self, columns: Mapping[int, RawColumn]) -> list[np.ndarray] | None:
        """Return the feeds of rows by codes of Arrow's texts.

        `columns`: by the input's column.
        Returns float64, shape (n,) each, in the plan's order. None for other rows, or if a value may be
        refused.
        """
        texts = [columns[raw] for raw, _ in self._codes]
        if self._coded is None or not all(isinstance(text, Text) for text in texts):
            return None
        try:
            codes = [text.codes(coder) for (_, coder), text in zip(self._codes, texts, strict=True)]
        except InputError:
            return None
        numbers = [self.raw_values(raw, columns[raw]) for raw in self._coded.raws]
        if any(x.dtype != _F64 for x in numbers):
            return None
        computed = _in_blocks(self._coded, [*numbers, *(x.astype(np.float64) for x in codes)])
        return None if computed is None else list(computed)

    def raw_values(self, raw: int, column: RawColumn) -> np.ndarray:
        """Return a column as `Evaluator` takes it; errors name the column."""
        try:
            return column.raw()
        except InputError as error:
            raise InputError(f"{self._columns.name(raw)}: {error.args[0]}", error.row) from None

    def compute(self, raw: Mapping[int, np.ndarray], dtype: np.dtype) -> dict[int, np.ndarray]:
        """Return the feeds by their positions in the matrix, shape (n,) each.

        Raises `InputError` if a step refuses a value.

        `raw`: the input's columns from `raw_values`.
        `dtype`: the type of numbers.
        """
        evaluator, feeds = Evaluator(raw, dtype.name), self._grouped(raw)
        for j in self._hosts:
            if j in feeds:
                continue
            feed = self._feeds[j]
            try:
                source = evaluator.column(feed.source, ())
                if not feed.allow_inf and source.dtype.kind == "f":
                    refuse(np.isinf(source), feed, "infinity")
                values = evaluator.column(feed.source, feed.steps)
                if values.dtype.kind != "f":
                    values = numbers_of(values.tolist(), dtype)
            except InputError as error:
                text = str(error.args[0])
                text = text if feed.where in text else f"{feed.where}: {text}"
                raise InputError(text, error.row) from None
            feeds[j] = values
        return feeds

    def _grouped(self, raw: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the feeds that can be computed in groups; none if a value may be refused."""
        columns = [raw[i] for i in self._groups.raws]
        if not columns or any(x.dtype != columns[0].dtype for x in columns):
            return {}
        computed = _in_blocks(self._groups, columns)
        return {} if computed is None else dict(zip(self._groups.places, computed, strict=True))


def _in_blocks(groups: HostGroups, columns: Sequence[np.ndarray]) -> np.ndarray | None:
    """Call `HostGroups.compute` on blocks of rows."""
    rows, parts = max(64, _BLOCK // len(columns)), []
    for start in range(0, max(len(columns[0]), 1), rows):
        part = groups.compute(np.array([x[start : start + rows] for x in columns]))
        if part is None:
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _is_word(value: Any) -> bool:
    """Return whether a value is a text or missing."""
    return type(value) is str or value is None or (type(value) is float and value != value)


def _one_value(value: Any) -> np.ndarray:
    """Return a column of one value as `Evaluator` takes it."""
    if are_numbers((value,)):
        return np.array([value], np.float64)
    out = np.empty(1, object)
    out[0] = np.nan if value is not None and is_nan(value) else value
    return out


def refuse(bad: np.ndarray, feed: Feed, what: str) -> None:
    """Raise an `InputError` that names the feed and the first row where `bad` is true, if any."""
    if bad.any():
        text = f"{feed.where}, row {ROW}: got {what}; expected finite numbers."
        raise InputError(text, int(bad.argmax()))
