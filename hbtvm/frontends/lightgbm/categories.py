"""Category columns of the training frame of a LightGBM model.

The text lists the categories of every category column of the training frame, including ordered categories and
columns that the user declared numeric, in the order of these columns. It does not name the columns. LightGBM
reads a column of categories as codes, and the text has for each column: ``[least:largest]`` of a numeric
column, the values of a categorical column, ``none`` of a constant column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hbtvm.graph.columns.categories import CategoryList, certain, narrowed, place


def category_columns(
    stored: Sequence[Sequence[Any]], infos: Sequence[str], n_features: int, read: Collection[int]
) -> tuple[dict[int, tuple[Any, ...]], tuple[CategoryList, ...]]:
    """Assign the stored categories to columns.

    `stored`: the text's ``pandas_categorical``.
    `infos`: the text's ``feature_infos``; ignored unless there are `n_features` of them.
    `n_features`: number of columns.
    `read`: columns that some tree reads.
    Returns the categories of certain columns, and the lists of all if some read columns are uncertain.
    """
    if not stored:
        return {}, ()
    ranges = [_codes(info) for info in infos] if len(infos) == n_features else [(0.0, 0.0)] * n_features
    lists = tuple(
        CategoryList(tuple(values), tuple(i for i, codes in enumerate(ranges) if _fits(codes, len(values))))
        for values in stored
    )
    options = place(lists)
    if not options:
        # The infos may be of other rows than the categories, as after a continued training.
        lists = tuple(CategoryList(known.values, tuple(range(n_features))) for known in lists)
        options = place(lists)
    known, uncertain = certain(lists, options)
    # Columns that no tree reads may hold anything, but still count in the order of the lists.
    known.update((column, ()) for column in uncertain if column not in read)
    open_ones = any(column in read for column in uncertain)
    return known, narrowed(lists, options) if open_ones else ()


def _codes(info: str) -> tuple[float, float] | None:
    """Return the least and the largest of a column's values if they may be codes, else None."""
    if info == "none":
        return 0.0, 0.0
    numeric = info.startswith("[") and info.endswith("]")
    try:
        values = [float(word) for word in (info[1:-1] if numeric else info).split(":")]
    except ValueError:
        return None
    # Among categorical values, -1 stands for a missing value.
    if not all(value.is_integer() and value >= (0 if numeric else -1) for value in values):
        return None
    return min(values), max(values)


def _fits(codes: tuple[float, float] | None, count: int) -> bool:
    return codes is not None and codes[1] < max(count, 1)
