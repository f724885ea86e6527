"""The columns of a transformer of feature-engine: by name, in the order of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.encoders.tables import category
from hbtvm.frontends.transformers.typed import accepting
from hbtvm.frontends.transformers.values import scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Within
from hbtvm.graph.columns.table import Column, Table


class Columns:
    """The columns of a transformer's input, by label; they become those of its output."""

    def __init__(self, record: Record, table: Table, where: Where) -> None:
        labels = [category(label) for label in record.sequence("feature_names_in_")]
        self._columns: dict[Any, Column] = dict(zip(labels, table.columns, strict=True))
        if len(self._columns) != len(table):
            raise where.damaged("its columns share a name.")
        self._record, self._where = record, where

    def __getitem__(self, label: Any) -> Column:
        try:
            return self._columns[label]
        except KeyError:
            raise self._where.damaged(f"it changes a column {label!r:.60} that does not exist.") from None

    def __setitem__(self, label: Any, column: Column) -> None:
        self._columns[label] = column

    def variables(self) -> list[Any]:
        """Return the labels of the columns that the transformer reads."""
        labels = [category(label) for label in self._record.sequence("variables_")]
        if len(set(labels)) != len(labels):
            raise self._where.damaged("it reads a column twice.")
        for label in labels:
            self[label]
        return labels

    def drop(self, labels: Sequence[Any]) -> None:
        """Leave out columns."""
        for label in labels:
            self[label]
            self._columns.pop(label)

    def check_numbers(self, nan: bool = False, inf: bool = False) -> None:
        """Refuse NaN and infinities in the variables, as the library does."""
        for label in self.variables():
            self[label] = accepting(Table((self[label],)), nan, inf).columns[0]

    def table(self) -> Table:
        """Return the columns as a table."""
        return Table(tuple(self._columns.values()), False, tuple(map(str, self._columns)))


def numbers_by_label(record: Record, name: str, where: Where) -> dict[Any, float]:
    """Return a dictionary of numbers, by column."""
    values = record.get(name)
    if not isinstance(values, Mapping):
        raise where.damaged(f"its {name} is not a dictionary.")
    numbers = {label: scalar(value, f"a number of {where.step}") for label, value in values.items()}
    if any(not isinstance(number, int | float) for number in numbers.values()):
        raise where.damaged(f"its {name} has other values than numbers.")
    return {category(label): float(number) for label, number in numbers.items()}


def each_variable(change: Callable[[Column, Any, Record, Where], Column]) -> Any:
    """Return the reader of a transformer that changes its variables in place, and refuses NaN in them."""

    def read(record: Record, table: Table, where: Where) -> Table:
        columns = Columns(record, table, where)
        columns.check_numbers()
        for label in columns.variables():
            column = change(columns[label], label, record, where)
            if any(isinstance(step, Within) for step in column.steps):
                # The library refuses numbers outside of the function's domain.
                column = replace(column, allow_nan=False)
            columns[label] = column
        return columns.table()

    return read
