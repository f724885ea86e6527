"""The bench of the TreeGRU's scores, on a made-up space."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.cost_model.encoding.flat import flat_features
from tests.fake_programs import cost
from tests.fake_tuning import SPACE, loops

pytest.importorskip("torch", reason="PyTorch is not installed")
from benchmarks import cost_model as bench


def test_both_score_alike() -> None:
    configs = SPACE.sample(np.random.default_rng(0), 120)
    table = flat_features([loops(config) for config in configs])
    timings = bench.Timings()
    found = bench.Candidates(table, np.array([cost(config) for config in configs]), 0.1, 0.01)
    row, ratios = bench.compared("made-up", found, 40, 0.05, timings)
    assert row[:3] == ["made-up", "120", "5.0"]  # four loops and a body
    assert float(row[9]) < 1e-5 and row[10] == "100.0000%"
    assert row[11] == row[12] and float(row[11]) > 0.8
    assert min(ratios) > 0 and timings.first > 0 and len(timings.later) == 1


def test_without_kernels_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "make_scorer", lambda weights: None)
    table = flat_features([loops(config) for config in SPACE.sample(np.random.default_rng(0), 40)])
    found = bench.Candidates(table, np.arange(1.0, 41), 0.1, 0.01)
    with pytest.raises(RuntimeError, match="can't be compiled"):
        bench.compared("made-up", found, 20, 0.05, bench.Timings())
