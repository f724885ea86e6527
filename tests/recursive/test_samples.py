"""Structures that kernels are measured on."""

from __future__ import annotations

import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.compiler.recursion.samples import check_sample, sample, taken
from hbtvm.errors import InputError, InputTypeError
from hbtvm.recursive import known, reference
from tests.recursive.random_cells import random_structures


def test_samples() -> None:
    """Structures that are taken are those given, whatever their order; too few are repeated."""
    cell = known.example("tree_lstm", 3, vocabulary=9)
    given = random_structures(cell, 7, count=6)
    results = reference.readout(cell, rec.total("h").readout, given, reference.states(cell, given))
    for count in (1, 4, 6, 20):
        found = taken(given, count, seed=count)
        check_sample(cell, found)
        assert len(found) == count
        own = reference.readout(cell, rec.total("h").readout, found, reference.states(cell, found))
        rows = {tuple(row) for row in results.round(9)}
        assert all(tuple(row) in rows for row in own.round(9))
        if count >= 6:
            assert {tuple(row) for row in own.round(9)} == rows
    check_sample(cell, sample(cell, 3))


def test_wrong_samples() -> None:
    model = rec.Model(known.example("tree_lstm", 3, vocabulary=9))
    with pytest.raises(InputTypeError, match=r"sample should be structures, .* got list"):
        hbtvm.compile(model, sample=[[1, 2]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="structure 1, node 0: 'word' is 9; expected"):
        hbtvm.compile(model, sample=rec.trees([[1, 2], [9, 1]]))
    with pytest.raises(InputError, match="sample has no node"):
        hbtvm.compile(model, sample=rec.trees([]))
