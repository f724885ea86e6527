"""The columns that encoders of category_encoders read, and the table of all output columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import feature_names
from hbtvm.frontends.transformers.dispatch import require_width
from hbtvm.frontends.transformers.encoders.tables import Coding, category, coded, is_missing
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Column, Table

_MOST_ENTRIES = 1 << 26
"""Bound of the entries of all tables, as a file may name a long mapping again and again."""


@dataclass(frozen=True)
class Encoded:
    """The coding of a column, and the names of the columns that replace it."""

    coding: Coding
    names: Sequence[str]


def encoded(record: Record, table: Table, where: Where, read: Callable[[Any], Encoded]) -> Table:
    """Return a table whose encoded columns are replaced in their places.

    `read`: returns a column's coding, by the column's label.
    """
    if record.get("composite_members_", None):
        raise where.unsupported(
            "joins columns (composite_cols), which is not supported; join them before the encoder."
        )
    labels, names = labels_of(record, table, where)
    chosen = record.sequence("cols")
    if len({repr(label) for label in chosen}) != len(chosen) or any(label not in labels for label in chosen):
        raise where.damaged("its cols are not distinct columns.")
    dropped = (
        {str(name) for name in record.sequence("invariant_cols")} if record.get("drop_invariant") else ()
    )
    lumping = record.get("min_group_lumping_", None) or {}
    columns: list[Column] = []
    named: list[str] = []
    entries = 0
    for label, name, column in zip(labels, names, table.columns, strict=True):
        if label not in chosen:
            results, result_names = [column], [name]
        else:
            part = read(label)
            coding = lumped(part.coding, lumping.get(label) or {})
            entries += (len(coding.known) + 1) * len(part.names)
            if entries > _MOST_ENTRIES:
                raise where.unsupported(f"has tables of more than {_MOST_ENTRIES:,} numbers.")
            results, result_names = coded(column, coding, where), list(part.names)
            kept = [i for i, each in enumerate(result_names) if each not in dropped]
            results, result_names = [results[i] for i in kept], [result_names[i] for i in kept]
        columns += results
        named += result_names
        require_width(len(columns), where)
    return Table(tuple(columns), False, tuple(named))


def labels_of(record: Record, table: Table, where: Where) -> tuple[list[Any], list[str]]:
    """Return the labels of the input's columns as the encoder has them, and their names."""
    labels = [category(label) for label in record.sequence("feature_names_in_")]
    if len(labels) != len(table) or len({repr(label) for label in labels}) != len(labels):
        raise where.damaged(f"it has labels of {len(labels)} columns, but gets {len(table)}.")
    names = feature_names(record)
    return labels, [str(label) for label in labels] if names is None else list(names)


def lumped(coding: Coding, groups: dict[Any, Any]) -> Coding:
    """Return a coding behind groups of categories: the group of each category, or of missing values."""
    if not groups:
        return coding
    missing, known = coding.missing, dict(coding.known)
    for value, group in groups.items():
        numbers = coding.known.get(category(group), coding.unknown)
        if is_missing(category(value)):
            missing = numbers
        elif numbers is not None:
            known[category(value)] = numbers
    return Coding(known, missing, coding.unknown, coding.none)
