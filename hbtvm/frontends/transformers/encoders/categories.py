"""Categories of encoders by column, groups of infrequent categories, and the step that looks up values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import ObjectArray, Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.transformers.encoders.rare import Rare
from hbtvm.frontends.transformers.values import is_na, scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Encode, is_nan
from hbtvm.graph.columns.table import Column


@dataclass(frozen=True)
class Known:
    """The categories of a column."""

    values: tuple[Any, ...]  # distinct values, in the order of their codes
    texts: tuple[str, ...]  # the same as scikit-learn writes them in names of columns
    # Int64, shape (categories,): the group of each category. Infrequent categories share the last group; all
    # others are alone in theirs
    groups: np.ndarray
    infrequent: int | None  # the group of infrequent categories; None if no category is infrequent


def known_categories(record: Record, width: int, where: Where, apart: bool = False) -> list[Known]:
    """Return the categories of each column of an encoder.

    `width`: columns that it reads.
    `apart`: whether NaN, the last category then, is never infrequent and not grouped (``OrdinalEncoder``).
    Raises `UnsupportedModel` if categories are dates or other objects. Raises `ModelError` if they are
    damaged.
    """
    stored = record.sequence("categories_")
    if len(stored) != width:
        raise where.damaged(f"it has categories of {len(stored)} columns, but gets {width}.")
    rare: list[Any] = [None] * width
    if record.get("_infrequent_enabled", False):
        rare = record.sequence("_infrequent_indices")
        if len(rare) != width:
            raise where.damaged(f"it has infrequent categories of {len(rare)} columns, not {width}.")
    return [_known(values, few, where, apart) for values, few in zip(stored, rare, strict=True)]


def _known(stored: Any, few: Any, where: Where, apart: bool) -> Known:
    values = _values(stored, where)
    if not values or len({repr(value) for value in values}) != len(values):
        raise where.damaged("a column has no categories, or repeats some.")
    plain = tuple(scalar(value, "a category") for value in values)
    numbers = np.arange(len(values))
    if few is None:
        return Known(plain, tuple(map(str, values)), numbers, None)
    if not isinstance(few, np.ndarray) or few.dtype.kind not in "iu" or few.ndim != 1:
        raise where.damaged("infrequent categories are not a list of numbers.")
    counted = len(values) - (apart and is_nan(plain[-1]))
    if not len(few) or np.any(few < 0) or np.any(few >= counted):
        raise where.damaged("an infrequent category does not exist.")
    often = np.ones(counted, bool)
    often[few] = False
    last = int(often.sum())
    groups = numbers.copy()
    groups[:counted] = np.where(often, np.cumsum(often) - 1, last)
    return Known(plain, tuple(map(str, values)), groups, last)


def _values(stored: Any, where: Where) -> list[Any]:
    if isinstance(stored, np.ndarray) and stored.ndim == 1 and stored.dtype.kind in "biufU":
        return list(stored)
    items = stored.items if isinstance(stored, ObjectArray) else None
    if items is None or any(is_na(item) for item in items):
        raise where.unsupported(
            "has categories that are not strings, numbers or bools, which is not supported."
        )
    for item in items:
        if not (item is None or isinstance(item, (str, bool, int, float, np.generic))):
            raise where.unsupported(
                f"has {kind_of(item)} as a category; supported are strings, numbers and bools."
            )
    return items


def encode(
    known: Known, unknown: Literal["error", "code", "missing"], column: Column, where: Where
) -> Column:
    """Return a column as the codes of categories.

    The codes of an earlier encoder are known: if none of them can be unknown, no value is refused.
    """
    last = column.steps[-1] if column.steps else None
    if isinstance(last, Rare):
        return last.encoded(known.values, unknown, column, where.column(column))
    before = column.encoder
    if unknown == "error" and before is not None and before.unknown == "error":
        codes = np.arange(len(before.categories), dtype=np.float64)
        for step in column.steps[column.steps.index(before) + 1 :]:
            codes = step.apply(codes)
        encoder = Encode(known.values, "code")
        if any(encoder.code(code) == len(known.values) for code in codes.tolist()):
            raise ModelError(f"{where.column(column)}: it gets values that it does not know.")
        return column.then(encoder)
    return column.then(Encode(known.values, unknown, where.column(column)))
