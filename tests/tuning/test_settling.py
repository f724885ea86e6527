"""A run leaves batch sizes of which the cost model expects too little, and measures defaults in its final."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hbtvm.cost_model.base import CostModel, Prediction
from hbtvm.tuning.choices import ENOUGH, PRESETS
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.learning.acquisition import AcquisitionScore
from hbtvm.tuning.learning.settling import FEWEST
from tests.fake_tuning import START, InProcess, optimum, run, task, winner


@pytest.fixture(scope="module")
def settled() -> Any:
    return run(task(group="small"), task(group="large", rows=9, scale=3e-3), trials=400, enough=ENOUGH)


def test_a_run_ends_where_the_model_expects_little(settled: Any) -> None:
    assert settled.stopped == "settled"
    assert settled.settled.keys() == {"small", "large"}
    assert all(0 <= gain < ENOUGH for gain in settled.settled.values())
    assert all(group.trials >= FEWEST for group in settled.groups.values())
    assert settled.trials < 300
    assert winner(settled, "small")[2] <= 1.02 * optimum()
    assert winner(settled, "large")[2] <= 1.02 * 3 * optimum()


def test_promises_that_brought_nothing_count_less() -> None:
    # All candidates of one group take the same time but for noise; the model knows the other's variation.
    machine = InProcess(noise=lambda n: 1 + 0.01 * ((n * 7919) % 13 - 6) / 6)
    tasks = task(group="flat", rows=9, time=1e-3), task(group="steep")
    result = run(*tasks, trials=120, enough=ENOUGH, machine=machine)
    assert result.stopped == "settled"
    assert result.groups["flat"].trials < 60
    assert winner(result, "steep")[2] <= 1.02 * optimum()


def test_by_default_and_without_uncertainty_all_trials_are_done(settled: Any) -> None:
    more = settled.trials + 20
    assert run(task(), trials=more // 2).stopped == "trials"
    assert run(task(), trials=more // 2, enough=ENOUGH, choices=PRESETS["random"]).stopped == "trials"


def test_a_group_with_a_promising_strategy_is_not_left() -> None:
    # All of the second strategy's candidates are twice as fast.
    tasks = [task(name, scale=scale) for name, scale in (("usual", 1e-3), ("better", 5e-4))]
    result = run(*tasks, trials=400, enough=ENOUGH)
    assert winner(result)[0] == "better"
    assert winner(result)[2] <= 1.05 * 0.5 * optimum()


def test_the_final_measures_the_default_in_turns(settled: Any) -> None:
    for group in settled.groups.values():
        assert group.default.config == START and group.default.final and group.best.final
        assert len(group.default.times) == len(group.best.times)
        assert group.gain == group.default.time / group.best.time > 1


def test_there_is_no_gain_without_a_final_of_both() -> None:
    only = run(task(), trials=1).groups["1000 rows"]
    assert only.best == only.default and only.gain == 1
    unmeasured = run(task(), trials=40, final=FinalOptions(finalists=1)).groups["1000 rows"]
    assert unmeasured.default is not None and unmeasured.gain is None


class Flat(CostModel):
    """Predicts a mean and a deviation for each row, in its first two columns."""

    def fit(self, *arguments: Any, **options: Any) -> None: ...

    def predict(self, features: Any) -> Prediction:
        table = np.asarray(features, float)
        return Prediction(table[:, 0], table[:, 1])

    def believing(self, features: Any) -> CostModel:
        return self


def score(rows: dict[str, tuple[float, float]], kind: str = "ei") -> AcquisitionScore:
    def features(configs: Any) -> np.ndarray:
        return np.array([rows[config["name"]] for config in configs], np.float32)

    def fail(error: Exception) -> None:
        raise error

    return AcquisitionScore(Flat(), kind, features, np.zeros((1, 2), np.float32), fail)


def test_the_expected_gain_is_that_of_normal_distributions() -> None:
    same = score({"a": (0.0, 1.0)})
    half = 1 / math.sqrt(2 * math.pi)  # of a normal variable, the mean of its positive part
    assert same.gain([{"name": "a"}], 0.0) == pytest.approx(half)
    assert same.gain([{"name": "a"}] * 2, 0.0) == pytest.approx(2 * half)
    assert same.gain([{"name": "a"}], 5.0) < 1e-6
    better = score({"a": (1.0, 0.01), "b": (1.0, 0.01)})
    # The second adds only what it may have over the first.
    assert better.gain([{"name": "a"}, {"name": "b"}], 0.0) == pytest.approx(1 + 0.01 * half)
    assert score({"a": (0.0, 1.0)}, "mean").gain([{"name": "a"}], 0.0) is None
    assert score({"a": (0.0, 0.0)}).gain([{"name": "a"}], 0.0) is None
