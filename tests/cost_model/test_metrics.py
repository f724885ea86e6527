"""Metrics against brute force and by hand."""

import numpy as np
import pytest

from hbtvm.cost_model import pairwise_accuracy, recall_at_k


def test_pairwise_accuracy_counts_pairs():
    rng = np.random.default_rng(0)
    scores, costs, groups = rng.integers(0, 9, 600), rng.integers(0, 9, 600), rng.integers(0, 4, 600)
    right = total = 0.0
    for i in range(600):
        for j in range(600):
            if costs[i] < costs[j] and groups[i] == groups[j]:
                total += 1
                right += 0.5 if scores[i] == scores[j] else float(scores[i] > scores[j])
    assert pairwise_accuracy(scores, costs, groups) == pytest.approx(right / total)


def test_pairwise_accuracy_at_its_ends():
    costs = np.array([1.0, 2.0, np.inf])
    assert pairwise_accuracy(-np.arange(3), costs) == 1.0
    assert pairwise_accuracy(np.arange(3), costs) == 0.0
    assert pairwise_accuracy(np.zeros(3), costs) == 0.5
    assert pairwise_accuracy(np.arange(3), np.full(3, np.inf)) == 0.5
    assert pairwise_accuracy([], []) == 0.5


def test_recall_at_k():
    costs = [5.0, 1.0, 2.0, np.inf]
    assert recall_at_k([0, 9, 8, 7], costs, 2) == 1.0
    assert recall_at_k([9, 8, 0, 0], costs, 2) == 0.5
    assert recall_at_k([9, 0, 0, 8], costs, 2) == 0.0
    assert recall_at_k([9, 0, 0, 8], costs, 10) == 1.0
    for k, given in ((0, costs), (1, [])):
        with pytest.raises(ValueError, match="at least 1"):
            recall_at_k(given, given, k)
