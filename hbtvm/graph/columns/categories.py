"""Assign lists of categories to columns, if a model states only the order of the lists.

LightGBM stores the categories of a data frame's category columns in the order of these columns, but not
their names: when it predicts, the frame's types identify them. Other facts that it stores of each column (the
range of its numbers, or the categories that occurred) exclude some assignments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.codec import Index, Scalar
from hbtvm.words.printable import shown


@dataclass(frozen=True)
class CategoryList:
    """The categories of a column, and the columns that it may be."""

    values: tuple[Scalar, ...]  # the categories in the order of their codes
    columns: tuple[Index, ...]  # indices of the columns that it may belong to, ascending


def place(
    lists: Sequence[CategoryList], categorical: Collection[int] = (), words: Collection[int] = ()
) -> dict[int, frozenset[int | None]]:
    """Return the lists that each column may hold.

    `lists`: in the order of the columns that they belong to.
    `categorical`: columns that certainly hold categories.
    `words`: those of them that hold text, so that their categories must include text.
    Returns, for each column of any list, the indices of the lists that it may hold, and None if it may hold
    numbers. A set of one element is certain: no other assignment of all lists fits. Empty if no assignment
    fits.
    """
    columns = sorted({column for known in lists for column in known.columns} | set(categorical))
    possible = [frozenset(known.columns) for known in lists]
    texts = [any(isinstance(value, str) for value in known.values) for known in lists]
    count = len(lists)

    def holds(column: int, i: int) -> bool:
        return column in possible[i] and (texts[i] or column not in words)

    # before[j]: the numbers of lists that the first j columns may hold; after[j]: that the others leave them.
    before = [{0}]
    for column in columns:
        held = {i + 1 for i in before[-1] if i < count and holds(column, i)}
        before.append(held if column in categorical else held | before[-1])
    after = [{count}]
    for column in reversed(columns):
        held = {i - 1 for i in after[-1] if i > 0 and holds(column, i - 1)}
        after.append(held if column in categorical else held | after[-1])
    after.reverse()
    if count not in before[-1]:
        return {}
    result: dict[int, frozenset[int | None]] = {}
    for j, column in enumerate(columns):
        options: set[int | None] = {
            i for i in before[j] if i < count and i + 1 in after[j + 1] and holds(column, i)
        }
        if column not in categorical and before[j] & after[j + 1]:
            options.add(None)
        result[column] = frozenset(options)
    return result


def narrowed(
    lists: Sequence[CategoryList], options: dict[int, frozenset[int | None]]
) -> tuple[CategoryList, ...]:
    """Return the lists with only the columns that `place` allows."""
    return tuple(
        CategoryList(known.values, tuple(column for column, held in options.items() if i in held))
        for i, known in enumerate(lists)
    )


def certain(
    lists: Sequence[CategoryList], options: dict[int, frozenset[int | None]]
) -> tuple[dict[int, tuple[Any, ...]], list[int]]:
    """Return the categories of columns that certainly have some, and the uncertain columns."""
    known: dict[int, tuple[Any, ...]] = {}
    uncertain = []
    for column, held in options.items():
        if len(held) > 1:
            uncertain.append(column)
        else:
            known.update((column, lists[i].values) for i in held if i is not None)
    return known, uncertain


def named(columns: Iterable[int], names: Sequence[str] | None, most: int = 5) -> str:
    """Return the names of columns for an error, at most `most` of them."""
    numbers = list(columns)
    listed = ", ".join(str(i) if names is None else f"'{shown(names[i])}'" for i in numbers[:most])
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"column{'s' if len(numbers) > 1 else ''} {listed}{more}"
