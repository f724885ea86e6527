"""Coupled probabilities of pairs."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.operators.base import Input
from hbtvm.operators.coupling import Coupling


def pairs_of(p: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(p.shape[1], 1)
    result: np.ndarray = p[:, first] / (p[:, first] + p[:, second])
    return result


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_pairs_that_agree_give_the_probabilities_they_come_from(classes: int) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(classes), 200)
    found = Coupling(Input(classes * (classes - 1) // 2), classes).checked().reference(pairs_of(p))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    # The rounds stop early.
    assert np.abs(found - p).max() < 0.1
    assert (found.argmax(axis=1) == p.argmax(axis=1)).mean() > 0.95


def test_each_row_stops_by_itself() -> None:
    p = np.random.default_rng(1).dirichlet(np.ones(4), 50)
    node = Coupling(Input(6), 4)
    together = node.reference(pairs_of(p))
    alone = np.concatenate([node.reference(pairs_of(one[None])) for one in p])
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    np.testing.assert_array_equal(node.reference(np.full((1, 6), 0.5)), np.full((1, 4), 0.25))


def test_widths_are_checked() -> None:
    with pytest.raises(ValueError, match="5 pairs of 4 classes"):
        Coupling(Input(5), 4).checked()
