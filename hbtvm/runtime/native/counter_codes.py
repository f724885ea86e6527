"""Codes of categories, by which tables of few combinations are read without hashes.

A model stores no categories, but hashes of combinations::

    h = sum over elements i from 1 to n of m ** (n - i + 2) * e[i]

From a combination of one category and tests, which are 0 or 1, the category can be computed: m has an
inverse, and only categories fit 32 bits with a sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hbtvm.graph.columns.counters import HASH, MULTIPLIER, Counters

_INVERSE = np.uint64(pow(int(MULTIPLIER), -1, 1 << 64))
_MOST = 1 << 16  # combinations of a table that is read by codes
_FEW = 1 << 10  # combinations of which most may be absent from the table
_LONGEST = 8  # elements of a combination that is searched for categories
_PER_HASH = 4  # else combinations for each hash


def known_categories(operation: Counters, paths: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return the categories of each input that combinations with no other category have.

    `paths`: the elements of each table's combination, counted from 1; 0 for none.
    Returns uint64, ascending, as they are hashed; shape (0,) for inputs without.
    """
    known: list[list[np.ndarray]] = [[] for _ in operation.inputs.columns]
    for at, path in enumerate(paths):
        hashed = [i for i, element in enumerate(path) if element and operation.test[element - 1] == HASH]
        if len(hashed) != 1 or len(path) > _LONGEST:
            continue
        hashes = operation.hashes[operation.start[at] : operation.start[at + 1]]
        (place,), column = hashed, int(operation.column[path[hashed[0]] - 1])
        others = [(0, 1) if element and i != place else (0,) for i, element in enumerate(path)]
        for bits in itertools.product(*others):
            rest = np.zeros(1, np.uint64)
            for bit in bits:
                rest = (rest + MULTIPLIER * np.uint64(bit)) * MULTIPLIER
            category = hashes - rest
            for _ in range(len(path) - place + 1):
                category = category * _INVERSE
            signed = category.view(np.int64)
            known[column].append(category[signed == signed.astype(np.int32)])
    return [np.unique(np.concatenate(lists)) if lists else np.zeros(0, np.uint64) for lists in known]


def code_counts(operation: Counters, categories: Sequence[np.ndarray]) -> list[int]:
    """Return the number of codes of each element, counted from 1: one more than categories, for others."""
    pairs = zip(operation.test.tolist(), operation.column.tolist(), strict=True)
    return [1, *(len(categories[column]) + 1 if test == HASH else 2 for test, column in pairs)]


def indices_by_codes(
    operation: Counters, at: int, path: Sequence[int], categories: Sequence[np.ndarray]
) -> np.ndarray | None:
    """Return the place of each combination of codes among a table's hashes; their number if absent.

    Returns int64, shape (combinations,); None if they are too many, or do not have all hashes of the table.
    """
    hashes = operation.hashes[operation.start[at] : operation.start[at + 1]]
    counts, most = code_counts(operation, categories), min(_MOST, max(_FEW, _PER_HASH * len(hashes)))
    if np.prod([float(counts[element]) for element in path]) > most:
        return None
    hashed, known = np.zeros(1, np.uint64), np.ones(1, bool)
    for element in path:
        values, there = np.arange(counts[element], dtype=np.uint64), np.ones(counts[element], bool)
        if element and operation.test[element - 1] == HASH:
            values[:-1], there[-1] = categories[operation.column[element - 1]], False
        hashed = ((hashed[:, None] + MULTIPLIER * values) * MULTIPLIER).ravel()
        known = (known[:, None] & there).ravel()
    place = np.searchsorted(hashes, hashed)
    known &= np.append(hashes, np.uint64(0))[place] == hashed
    known &= place < len(hashes)
    if len(np.unique(place[known])) < len(hashes):
        return None
    result: np.ndarray = np.where(known, place, len(hashes))
    return result
