"""Which columns of a LightGBM model held categories when it was trained.

The text lists the categories of every category column of the training frame, ordered ones and those that
the user gave as numbers included, in the order of these columns. It does not say which columns they were.
A column of categories reached LightGBM as codes, and of these the text keeps what it keeps of any column:
``[least:largest]`` of a numeric one, the values of a categorical one, ``none`` of one that never varied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hbtvm.graph.columns.categories import CategoryList, certain, narrowed, place


def category_columns(
    stored: Sequence[Sequence[Any]], infos: Sequence[str], n_features: int, read: Collection[int]
) -> tuple[dict[int, tuple[Any, ...]], tuple[CategoryList, ...]]:
    """Where the stored categories belong.

    `stored`: the text's ``pandas_categorical``.
    `infos`: the text's ``feature_infos``; without effect, if they are not one for each feature.
    `n_features`: number of columns.
    `read`: columns that some tree reads.
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
        # What is kept of the columns is of other rows than the categories (of a continued training, say).
        lists = tuple(CategoryList(one.values, tuple(range(n_features))) for one in lists)
        options = place(lists)
    known, uncertain = certain(lists, options)
    # What no tree reads may hold anything; the order of the others matters all the same.
    known.update((column, ()) for column in uncertain if column not in read)
    open_ones = any(column in read for column in uncertain)
    return known, narrowed(lists, options) if open_ones else ()


def _codes(info: str) -> tuple[float, float] | None:
    """Least and largest of a column's values if they may be codes of categories, else None."""
    if info == "none":
        return 0.0, 0.0
    numeric = info.startswith("[") and info.endswith("]")
    try:
        values = [float(word) for word in (info[1:-1] if numeric else info).split(":")]
    except ValueError:
        return None
    # Among categorical values, -1 stands for missing ones.
    if not all(value.is_integer() and value >= (0 if numeric else -1) for value in values):
        return None
    return min(values), max(values)


def _fits(codes: tuple[float, float] | None, count: int) -> bool:
    return codes is not None and codes[1] < max(count, 1)
