"""Assign lists of categories to columns, where a model states only the order of the lists.

LightGBM stores the categories of a data frame's category columns in the order of these columns, but not
which columns they were: when it predicts, the frame's types show that. What else it stores of each column
(the range of its numbers, or the categories that occurred) excludes some assignments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.codec import Index, Scalar
from hbtvm.words.printable import shown


@dataclass(frozen=True)
class CategoryList:
    """The categories of one column, and the columns that it may be."""

    values: tuple[Scalar, ...]  # the categories in the order of their codes
    columns: tuple[Index, ...]  # indices of the columns that it may belong to, ascending


def place(
    lists: Sequence[CategoryList], sure: Collection[int] = (), words: Collection[int] = ()
) -> dict[int, frozenset[int | None]]:
    """Return what each column may hold, if the lists belong to columns in their order.

    `lists`: in the order of the columns that they belong to.
    `sure`: columns that hold categories for certain.
    `words`: those of them that hold text, so that their categories must have some.
    Returns for each column that occurs in a list, the indices of the lists that it may hold, and None among
    them if it may hold numbers. A set of one element is certain: no other distribution of all lists fits.
    Empty, if none does.
    """
    columns = sorted({column for one in lists for column in one.columns} | set(sure))
    possible = [frozenset(one.columns) for one in lists]
    texts = [any(isinstance(value, str) for value in one.values) for one in lists]
    count = len(lists)

    def holds(column: int, i: int) -> bool:
        return column in possible[i] and (texts[i] or column not in words)

    # before[j]: how many lists the first j columns may hold; after[j]: how many the others leave to them.
    before = [{0}]
    for column in columns:
        held = {i + 1 for i in before[-1] if i < count and holds(column, i)}
        before.append(held if column in sure else held | before[-1])
    after = [{count}]
    for column in reversed(columns):
        held = {i - 1 for i in after[-1] if i > 0 and holds(column, i - 1)}
        after.append(held if column in sure else held | after[-1])
    after.reverse()
    if count not in before[-1]:
        return {}
    result: dict[int, frozenset[int | None]] = {}
    for j, column in enumerate(columns):
        found: set[int | None] = {
            i for i in before[j] if i < count and i + 1 in after[j + 1] and holds(column, i)
        }
        if column not in sure and before[j] & after[j + 1]:
            found.add(None)
        result[column] = frozenset(found)
    return result


def narrowed(
    lists: Sequence[CategoryList], options: dict[int, frozenset[int | None]]
) -> tuple[CategoryList, ...]:
    """Return the lists with only the columns that `place` allows them."""
    return tuple(
        CategoryList(one.values, tuple(column for column, held in options.items() if i in held))
        for i, one in enumerate(lists)
    )


def certain(
    lists: Sequence[CategoryList], options: dict[int, frozenset[int | None]]
) -> tuple[dict[int, tuple[Any, ...]], list[int]]:
    """Return the categories of the columns that certainly have some, and the columns that are uncertain."""
    known: dict[int, tuple[Any, ...]] = {}
    uncertain = []
    for column, held in options.items():
        if len(held) > 1:
            uncertain.append(column)
        else:
            known.update((column, lists[i].values) for i in held if i is not None)
    return known, uncertain


def named(columns: Iterable[int], names: Sequence[str] | None, most: int = 5) -> str:
    """Return the names of columns for an error's text, at most `most` of them."""
    every = list(columns)
    some = ", ".join(str(i) if names is None else f"'{shown(names[i])}'" for i in every[:most])
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"column{'s' if len(every) > 1 else ''} {some}{more}"
