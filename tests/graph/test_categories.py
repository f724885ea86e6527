"""Which columns hold categories: against all ways to place the lists."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.graph.columns.categories import CategoryList, named, place
from hbtvm.graph.graph import InputSpec


def every_way(
    lists: list[CategoryList], columns: int, sure: set[int], words: set[int]
) -> dict[int, frozenset[int | None]]:
    """What `place` gives, by trying all ways."""
    ways = []
    for chosen in itertools.combinations(range(columns), len(lists)):
        fits = all(
            c in one.columns and (c not in words or any(isinstance(v, str) for v in one.values))
            for c, one in zip(chosen, lists, strict=True)
        )
        if fits and sure <= set(chosen):
            ways.append({c: i for i, c in enumerate(chosen)})
    named_columns = {c for one in lists for c in one.columns} | sure
    return {c: frozenset(way.get(c) for way in ways) for c in named_columns} if ways else {}


def test_against_all_ways() -> None:
    rng = np.random.default_rng(0)
    placed = 0
    for _ in range(600):
        columns, count = int(rng.integers(1, 8)), int(rng.integers(1, 5))
        lists = [
            CategoryList(("a", "b") if rng.random() < 0.5 else (1, 2),
                         tuple(np.flatnonzero(rng.random(columns) < 0.6).tolist()))
            for _ in range(count)
        ]  # fmt: skip
        sure = set(np.flatnonzero(rng.random(columns) < 0.2).tolist())
        words = {c for c in sure if rng.random() < 0.5}
        want = every_way(lists, columns, sure, words)
        assert place(lists, sure, words) == want
        placed += bool(want)
    assert placed > 100


def test_many_columns_take_no_time() -> None:
    lists = [CategoryList((1, 2), tuple(range(3000))) for _ in range(40)]
    options = place(lists)
    assert options[0] == {0, None} and options[2999] == {39, None}


def spec(**fields: Any) -> InputSpec:
    order = (CategoryList(("x", "y"), (0, 1)), CategoryList((3, 5), (1, 2)))
    return InputSpec(4, ("a", "b", "c", "d"), category_order=order, **fields)


def test_a_specification_for_rows_that_tell() -> None:
    assert spec().placed([0, 2], [0]) == InputSpec(
        4, ("a", "b", "c", "d"), categories={0: ("x", "y"), 2: (3, 5)}
    )
    with pytest.raises(
        InputError, match=r"trained with categories in 2 columns, but not in just these: column 'd'"
    ):
        spec().placed([3], [3])
    with pytest.raises(InputError, match=r"columns 'b', 'c': the model file does not say which"):
        spec().placed([0], [0])
    unread = spec(categories={1: (), 2: ()}).placed([0], [0])
    assert unread.categories == {0: ("x", "y"), 1: (), 2: ()} and not unread.category_order
    assert spec().placed([1, 2], [1]).categories == {1: ("x", "y"), 2: (3, 5)}


def test_json() -> None:
    data = codec.write(spec())
    assert codec.read(InputSpec, data) == spec()
    assert "category_order" not in codec.write(InputSpec(3))
    for wrong in (
        7, [{"values": ["x"], "columns": [9]}], [{"values": ["x"], "columns": ["0"]}],
        [{"values": ["x"], "columns": [True]}], [{"values": ["x"], "columns": [-1]}], [{"values": ["x"]}],
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"category_order|column 9"):
            codec.read(InputSpec, {**data, "category_order": wrong})


def test_columns_in_words() -> None:
    assert named([3], None) == "column 3"
    assert named(range(7), list("abcdefg")) == "columns 'a', 'b', 'c', 'd', 'e' and 2 more"
