"""Counters by hashes against a look-up in dictionaries, and arrays that do not fit each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.graph.columns.counters import ABOVE, EQUAL, HASH, Counters
from hbtvm.graph.columns.table import Column, Raw, Table

MULTIPLIER, BITS = 0x4906BA494954CB65, (1 << 64) - 1
ELEMENTS = [(HASH, 0, 0.0), (HASH, 1, 0.0), (ABOVE, 2, 0.5), (EQUAL, 1, 7.0)]
COMBINATIONS = [(0,), (0, 1), (1, 2, 3), (0,)]


def element(row: list[float], at: int) -> int:
    kind, column, number = ELEMENTS[at]
    value = row[column]
    return {HASH: int(value) & BITS, ABOVE: int(value > number), EQUAL: int(value == number)}[kind]


def hashed(row: list[float], combination: tuple[int, ...]) -> int:
    result = 0
    for at in combination:
        result = MULTIPLIER * (result + MULTIPLIER * element(row, at)) & BITS
    return result


def rows(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([rng.integers(-90, 90, n), rng.integers(0, 9, n), rng.random(n)]).astype(float)


def counters(known: np.ndarray) -> tuple[Counters, list[dict[int, float]], list[float]]:
    """Return counters of the combinations of some rows, their numbers by hash, and those of other hashes."""
    rng = np.random.default_rng(5)
    tables: list[dict[int, float]] = []
    for combination in COMBINATIONS[:3]:
        hashes = sorted({hashed(row, combination) for row in known.tolist()})
        tables.append({key: float(np.float32(rng.random())) for key in hashes})
    # Neighbours of a hash are in its slot.
    crowd = {hashed(known[0].tolist(), (0,)) + i & BITS: float(i) for i in range(9)}
    tables.append(dict(sorted(crowd.items())))
    kind, column, number = zip(*ELEMENTS, strict=True)
    others = [-1.0, -2.0, -3.0, -4.0]
    operation = Counters(
        Table(tuple(Column(Raw(i)) for i in range(3))),
        np.array(kind, np.int32),
        np.array(column, np.int32),
        np.array(number),
        np.array([3], np.int32),
        np.array([[0] * (3 - len(c)) + [at + 1 for at in c] for c in COMBINATIONS], np.int32),
        np.cumsum([0, *map(len, tables)]),
        np.array([key for table in tables for key in table], np.uint64),
        np.array([2, 0, 1, 3], np.int32),
        np.array([v for t in (2, 0, 1, 3) for v in (*tables[t].values(), others[t])], np.float32),
    )
    operation.validate()
    return operation, tables, others


def test_numbers_of_known_and_other_combinations() -> None:
    rng = np.random.default_rng(1)
    known, x = rows(60, rng), rows(3000, rng)
    x[:60] = known
    operation, tables, others = counters(known)
    expected = [
        [
            float(row[1] == 7),
            *(tables[t].get(hashed(row, COMBINATIONS[t]), others[t]) for t in (2, 0, 1, 3)),
        ]
        for row in x.tolist()
    ]
    np.testing.assert_array_equal(operation.reference(x), expected)
    np.testing.assert_array_equal(operation.reference(x[:1]), expected[:1])
    assert operation.reference(x[:0]).shape == (0, 5)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("test", lambda a: a + 1),
        ("column", lambda a: a + 1),
        ("column", lambda a: a[1:]),
        ("number", lambda a: a.astype(np.float32)),
        ("hot", lambda a: a + 1),
        ("elements", lambda a: a + 2),
        ("elements", lambda a: a[0]),
        ("start", lambda a: a[::-1].copy()),
        ("start", lambda a: a[:-1]),
        ("hashes", lambda a: a[::-1].copy()),
        ("hashes", lambda a: a[1:]),
        ("table", lambda a: a + 1),
        ("values", lambda a: a[1:]),
    ],
)
def test_arrays_that_do_not_fit(name: str, change: Any) -> None:
    operation = counters(rows(60, np.random.default_rng(1)))[0]
    changed = replace(operation, **{name: change(getattr(operation, name))})
    with pytest.raises(ValueError, match=r"count|hash|table"):
        changed.validate()
